"""Readers of config.json, by family."""
