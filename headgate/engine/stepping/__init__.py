"""One step of a model, from chunks to what it found of each sequence."""
