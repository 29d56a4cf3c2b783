"""Secrets in the configuration: always by where they are, never themselves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

REFERENCE = r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$"
"""`env:NAME` of a variable, or `file:PATH` of a file, as containers are handed theirs."""


def read_secret(reference: str, environ: Mapping[str, str]) -> str:
    """The secret, without white space around it; ValueError, which never shows it, where there is none."""
    kind, _, name = reference.partition(":")
    if kind == "env":
        secret = environ.get(name, "").strip()
        if not secret:
            raise ValueError(f"the variable {name} is not set")
        return secret
    try:
        secret = Path(name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the file {name} cannot be read: {error}") from None
    if not secret:
        raise ValueError(f"the file {name} is empty")
    return secret


def header_secret(reference: str, environ: Mapping[str, str]) -> str:
    """A secret that is sent in a header; ValueError where there is none, or no header can hold it."""
    secret = read_secret(reference, environ)
    if not secret.isascii() or not secret.isprintable():
        raise ValueError(f"what {reference} refers to has characters that a header cannot hold")
    return secret


def resolved(value: str, environ: Mapping[str, str]) -> str:
    """A header's value, or what it refers to."""
    return header_secret(value, environ) if value.startswith(("env:", "file:")) else value


def variable_of(reference: str | None) -> str | None:
    """The variable that holds the secret, if one does."""
    kind, _, name = (reference or "").partition(":")
    return name if kind == "env" else None
