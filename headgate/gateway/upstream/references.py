"""Secrets of upstreams by reference: the configuration names where they are, and never holds them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def secret_of(reference: str, environ: Mapping[str, str]) -> str:
    """What `env:NAME` or `file:PATH` refers to; ValueError where it is not there."""
    kind, _, name = reference.partition(":")
    if kind == "env":
        if not (secret := environ.get(name, "").strip()):
            raise ValueError(f"the variable {name} is not set")
    else:
        try:
            secret = Path(name).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"the file {name} cannot be read: {error}") from None
        if not secret:
            raise ValueError(f"the file {name} is empty")
    if not secret.isascii() or not secret.isprintable():
        raise ValueError(f"what {reference} refers to has characters that a header cannot hold")
    return secret


def resolved(value: str, environ: Mapping[str, str]) -> str:
    """A header's value, or what it refers to."""
    return secret_of(value, environ) if value.startswith(("env:", "file:")) else value
