"""Gateways that are measured without the settings of the shell: those win over what they are started with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_PREFIX = "HEADGATE_"
_NO_SETTING = "HEADGATE_VECTORS"
"""Which instructions a process uses: all that are compared have to use the same."""


def without_settings() -> dict[str, str]:
    """This environment without a gateway's settings."""
    return {n: value for n, value in os.environ.items() if not n.startswith(_PREFIX) or n == _NO_SETTING}


@contextmanager
def no_settings() -> Iterator[None]:
    """Inside, this process has none: for gateways that are made in it."""
    left = without_settings()
    held = {name: os.environ.pop(name) for name in os.environ.keys() - left.keys()}
    try:
        yield
    finally:
        os.environ.update(held)
