"""Other OpenAI-compatible servers as destinations."""
