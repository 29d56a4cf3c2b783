"""The HTTP edge and the road of a request: admit, cache, route, generate, record."""
