"""Secrets of upstreams by reference: the configuration names where they are, and never holds them."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.gateway.secret_reference import read_secret


def secret_of(reference: str, environ: Mapping[str, str]) -> str:
    """What `env:NAME` or `file:PATH` refers to; ValueError where it is not there."""
    secret = read_secret(reference, environ)
    if not secret.isascii() or not secret.isprintable():
        raise ValueError(f"what {reference} refers to has characters that a header cannot hold")
    return secret


def resolved(value: str, environ: Mapping[str, str]) -> str:
    """A header's value, or what it refers to."""
    return secret_of(value, environ) if value.startswith(("env:", "file:")) else value
