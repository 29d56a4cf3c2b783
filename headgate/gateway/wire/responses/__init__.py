"""OpenAI's `/v1/responses`: requests, items, replies and what is stored of them, on the wire."""
