"""The paged KV cache: block pool and block tables."""
