"""Responses that outlive their request: stored, shared between gateways, or made in the background."""
