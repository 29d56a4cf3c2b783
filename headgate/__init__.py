"""Headgate: an OpenAI-compatible inference gateway that owns its engine."""

__version__ = "0.1.0"
