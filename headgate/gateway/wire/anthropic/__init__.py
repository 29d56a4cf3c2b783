"""Anthropic's `/v1/messages`: requests, replies and failures on the wire."""
