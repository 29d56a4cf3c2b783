"""The embedding model: where it lies, how it comes up, and what clients may ask of it."""
