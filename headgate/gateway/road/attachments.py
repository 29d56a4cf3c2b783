"""What a message has beside text: pictures, sound and files, as they are sent on to servers that take them.

Nothing here is opened or fetched. Data stays base64 as it came, a URL stays a URL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

Input = Literal["image", "audio", "file"]
"""Kinds of attachments."""

_PICTURE_TOKENS, _LOW_DETAIL_TOKENS = 1000, 100
_SOUND_BYTES, _FILE_BYTES = 1000, 50
"""Of a token: about a tenth of a second of compressed speech, and a thousandth of a page of a PDF with its picture."""


class Picture(msgspec.Struct, frozen=True, tag="image"):
    """A picture at a URL: its data, as in `data:image/png;base64,…`, or where it is to be fetched by http(s)."""

    url: str
    detail: str | None = None
    """How closely it is to be looked at, such as `low`."""
    place: str = ""
    """Where the client wrote it, such as `messages[2].content[1]`."""

    @property
    def kind(self) -> Input:
        """Of which kind it is."""
        return "image"

    @property
    def remote(self) -> bool:
        """Whether it has to be fetched by whoever looks at it."""
        return self.url[:5].lower() != "data:"

    @property
    def tokens(self) -> int:
        """About how many it is worth; how large it is nobody here knows."""
        return _LOW_DETAIL_TOKENS if self.detail == "low" else _PICTURE_TOKENS


class Sound(msgspec.Struct, frozen=True, tag="audio"):
    """A recording: base64 of a file of a format such as `wav`."""

    data: str
    format: str
    place: str = ""

    @property
    def kind(self) -> Input:
        """Of which kind it is."""
        return "audio"

    @property
    def remote(self) -> bool:
        """Never: it is here."""
        return False

    @property
    def tokens(self) -> int:
        """About how many it is worth, by its length in bytes."""
        return 1 + _bytes(self.data) // _SOUND_BYTES


class Document(msgspec.Struct, frozen=True, tag="file"):
    """A file such as a PDF: its data as a data URL or as base64 alone."""

    data: str
    name: str | None = None
    place: str = ""

    @property
    def kind(self) -> Input:
        """Of which kind it is."""
        return "file"

    @property
    def remote(self) -> bool:
        """Never: it is here."""
        return False

    @property
    def tokens(self) -> int:
        """About how many it is worth, by its length in bytes."""
        return 1 + _bytes(self.data) // _FILE_BYTES


Attachment = Picture | Sound | Document
Piece = str | Attachment


def written(pieces: Sequence[Piece]) -> tuple[str, tuple[Piece, ...]]:
    """A content of pieces as a message has it: its text, and the pieces where they are more than that."""
    texts = [piece for piece in pieces if isinstance(piece, str)]
    return "\n".join(texts), () if len(texts) == len(pieces) else tuple(pieces)


def _bytes(base64: str) -> int:
    return len(base64) * 3 // 4
