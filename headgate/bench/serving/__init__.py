"""Servers under load: what HTTP, the gateway, batches and open streams take."""
