"""One choice's answer as text: tokens in, text and log-probabilities out."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

from headgate.engine.request import TokenLogprob
from headgate.engine.text.detokenizer import detokenizer
from headgate.engine.text.stops import StopMatcher
from headgate.engine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """One of the likeliest tokens at a position: its text, UTF-8 bytes and natural-log probability."""

    token: str
    bytes: tuple[int, ...]
    logprob: float


@dataclass(frozen=True, slots=True)
class TextLogprob:
    """An emitted token with its text, UTF-8 bytes and natural-log probability, and the likeliest ones beside it."""

    token: str
    bytes: tuple[int, ...]
    logprob: float
    top: tuple[TopLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class TextPiece:
    """What some tokens added to the answer. `stopped` says that a stop string has ended it."""

    text: str = ""
    logprobs: tuple[TextLogprob, ...] = ()
    stopped: bool = False
    tokens: int = 0
    """How many of them belong to the answer: all, or those up to the one that completed the stop string."""


class ChoiceText:
    """Detokenizer, stop strings and log-probabilities of one choice.

    Joined pieces do not depend on how tokens are grouped into pushes. The entry of a token comes with the first of its
    text: it waits while the text is half a character or may begin a stop string, and is dropped when the token lies
    wholly in or after the stop string. Hidden tokens (special ones and `stop_token_ids`) have neither text nor entry.
    """

    def __init__(self, tokenizer: Tokenizer, stops: tuple[str, ...] = (), stop_token_ids: Collection[int] = ()) -> None:
        """Start an empty answer.

        Args:
            tokenizer: the model's.
            stops: stop strings, none empty.
            stop_token_ids: tokens that end the sequence besides the special ones.
        """
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids.union(stop_token_ids)
        self._hides_more = len(self._hidden) > len(tokenizer.special_ids)
        self._detokenizer = detokenizer(tokenizer)
        self._stops = StopMatcher(stops)
        self._may_stop = bool(stops)
        self._stopped = False
        self._decoded = 0  # characters out of the detokenizer
        self._emitted = 0  # characters out of the stop matcher
        self._waiting: deque[tuple[int, TokenLogprob]] = deque()  # (where the token's text begins, its entry)

    @property
    def matched(self) -> str | None:
        """The stop string that has ended it."""
        return self._stops.matched

    def push(self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob] = ()) -> TextPiece:
        """Take in tokens, with an entry for each of them or without any.

        Raises:
            ValueError: the numbers of tokens and of entries differ.
        """
        if not logprobs and not self._may_stop:
            # The detokenizer leaves out special tokens by itself.
            visible = [t for t in token_ids if t not in self._hidden] if self._hides_more else token_ids
            return self._piece(self._advance(visible), len(token_ids), ended=False)
        parts, tokens = [], 0
        entries: Iterable[TokenLogprob | None] = logprobs or repeat(None, len(token_ids))
        for token, entry in zip(token_ids, entries, strict=True):
            if self._stopped:
                break
            tokens += 1
            if token in self._hidden:
                continue
            if entry is not None:
                self._waiting.append((self._decoded, entry))
            parts.append(self._advance([token]))
        return self._piece("".join(parts), tokens, ended=False)

    def finish(self) -> TextPiece:
        """What was held back, when no more tokens will come."""
        text = self._match(self._detokenizer.flush())
        held = self._stops.flush()
        self._emitted += len(held)
        return self._piece(text + held, 0, ended=True)

    def _advance(self, visible: Sequence[int]) -> str:
        return "" if self._stopped else self._match(self._detokenizer.push(visible))

    def _match(self, text: str) -> str:
        self._decoded += len(text)
        emit, self._stopped = self._stops.push(text)
        self._emitted += len(emit)
        return emit

    def _piece(self, text: str, tokens: int, *, ended: bool) -> TextPiece:
        everything = ended and not self._stopped
        shown = []
        while self._waiting and (everything or self._waiting[0][0] < self._emitted):
            shown.append(described(self._waiting.popleft()[1], self._tokenizer))
        return TextPiece(text, tuple(shown), self._stopped, tokens)


def described(entry: TokenLogprob, tokenizer: Tokenizer) -> TextLogprob:
    """A token and the likeliest ones beside it with their texts, U+FFFD where one holds part of a character."""
    top = tuple(
        TopLogprob(tokenizer.token_text(token), tuple(tokenizer.token_bytes(token)), logprob)
        for token, logprob in entry.top
    )
    token = entry.token_id
    return TextLogprob(tokenizer.token_text(token), tuple(tokenizer.token_bytes(token)), entry.logprob, top)
