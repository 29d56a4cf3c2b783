"""JSON of which only one string changes from message to message: the rest is encoded once."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec

_MARK = secrets.token_hex(16)
"""A text that no id and no model name contains, because nobody can know it."""


class TextSlot:
    """Writes what `encode` would write, to the byte, at the price of the text alone.

    A stream repeats its id, model and shape in every event; encoding them anew costs several times what the text does.
    """

    def __init__(self, encode: Callable[[str], bytes]) -> None:
        """`encode` writes a message around a text, which it must carry as one JSON string."""
        self._encoder = msgspec.json.Encoder()
        self._before, found, self._after = encode(_MARK).partition(self._encoder.encode(_MARK))
        assert found, "the message carries its text as a JSON string"

    def fill(self, text: str) -> bytes:
        """The message with this text."""
        return self._before + self._encoder.encode(text) + self._after
