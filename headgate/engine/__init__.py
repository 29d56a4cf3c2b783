"""Tokens in, tokens out: continuous batching over a paged KV cache. Knows no HTTP and no team policy."""
