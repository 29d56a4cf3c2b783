"""From checkpoints to what computes them: one decoder for architectures that are data, guests, adapters, eyes."""
