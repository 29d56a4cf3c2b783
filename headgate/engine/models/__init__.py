"""Architectures as data, one decoder, the checkpoint loader."""
