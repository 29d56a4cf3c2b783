"""A server that fails in every way we know, and what the gateway makes of it."""
