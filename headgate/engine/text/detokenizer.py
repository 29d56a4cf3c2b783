"""Text from tokens as they come, only ever text that later tokens cannot change.

`tokenizers.decoders.DecodeStream` is not used: it keeps every token until its text is valid, so that a run of invalid
bytes is decoded again at each token (2,000 of them cost a quarter of a second) and shows nothing, and it raises
"Invalid prefix" when a SentencePiece byte run turns out to be invalid after a part of it was shown.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

from headgate.engine.text.tokenizer import Tokenizer

_Utf8 = codecs.getincrementaldecoder("utf-8")


class Detokenizer(Protocol):
    """One choice's text so far. Joined pieces equal `Tokenizer.decode` of all tokens."""

    def push(self, token_ids: Sequence[int]) -> str:
        """Take in tokens (special ones have no text) and return the text that has become final."""
        ...

    def flush(self) -> str:
        """The rest, when no more tokens will come."""
        ...


def detokenizer(tokenizer: Tokenizer) -> Detokenizer:
    """A new detokenizer of the kind the tokenizer's vocabulary needs."""
    return ByteStream(tokenizer) if tokenizer.spelling == "byte-level" else WindowStream(tokenizer)


class ByteStream:
    """For byte-level vocabularies: tokens are bytes, and only their UTF-8 decoding needs to wait."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # Replaces each maximal invalid part by one U+FFFD, like the tokenizers library.
        self._decoder = _Utf8("replace")

    def push(self, token_ids: Sequence[int]) -> str:
        """Take in tokens and return the text that has become final."""
        return self._decoder.decode(self._tokenizer.shown_bytes(token_ids))

    def flush(self) -> str:
        """U+FFFD if half a character is left, otherwise nothing."""
        return self._decoder.decode(b"", final=True)


class WindowStream:
    """For all other vocabularies: decode a short window, and show what it adds to the part already shown.

    The window starts with the last shown token, because decoders treat the first token of a text differently (they
    strip its leading space). SentencePiece byte tokens are kept until another token ends their run: the decoder turns
    the whole run into replacement characters if any of it is invalid, so no part of it is final before.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._shown: list[int] = []
        self._shown_text = ""
        self._waiting: list[int] = []

    def push(self, token_ids: Sequence[int]) -> str:
        """Take in tokens and return the text that has become final."""
        # An id without a token has no text and must not become the window's first token.
        visible = [token for token in self._tokenizer.visible(token_ids) if self._tokenizer.token_bytes(token)]
        ended = len(visible)
        while ended and self._tokenizer.is_byte_fallback(visible[ended - 1]):
            ended -= 1
        # What waits from before is one byte run, which only a token of another kind ends.
        final = len(self._waiting) + ended if ended else 0
        self._waiting += visible
        return self._show(final)

    def flush(self) -> str:
        """The byte run at the end, if there is one."""
        return self._show(len(self._waiting))

    def _show(self, count: int) -> str:
        """Show the first `count` waiting tokens."""
        if not count:
            return ""
        text = self._tokenizer.decode(self._shown + self._waiting[:count])
        piece = text[len(self._shown_text) :]
        self._shown = self._waiting[count - 1 : count]
        self._shown_text = self._tokenizer.decode(self._shown)
        del self._waiting[:count]
        return piece
