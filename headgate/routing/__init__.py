"""Which destination, and why: pure decisions over plain values."""
