"""Texts to vectors: the encoder, its compiled pass, the queue before it, and what compares two texts' words."""
