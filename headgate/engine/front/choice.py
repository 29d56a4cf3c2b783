"""One choice's stream of text, from the tokens that the engine hands over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headgate.engine.request import Delta, Finish
from headgate.engine.text.stream import ChoiceText, TextLogprob


@dataclass(slots=True)
class TextDelta:
    """What was added to one choice. The last delta of a choice carries its finish.

    Never changed once made; not frozen, for the same reason as `Delta`.
    """

    index: int
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TextLogprob, ...] = ()
    queue_s: float = 0.0
    finish: Finish | None = None
    stop: str | None = None
    """The stop string that ended the choice; in the last delta."""


class ChoiceStream:
    """Text of one choice, and where it stands."""

    def __init__(self, text: ChoiceText) -> None:
        self._text = text
        self._tokens = 0
        self._stopped = False
        self.overrun = False
        """The engine does not know yet that a stop string ended the choice; true once."""
        self.finished = False

    def end(self) -> None:
        """Who reads it has all that he wants: what still comes is dropped, and the account ends here."""
        self._stopped = True

    def push(self, delta: Delta) -> TextDelta | None:
        """The delta as text; None if it shows nothing."""
        if self._stopped:
            self.overrun = False
            return self._finish(delta, "", (), ()) if delta.finish is not None else None
        piece = self._text.push(delta.token_ids, delta.logprobs)
        said = delta.token_ids[: piece.tokens]
        self._tokens += piece.tokens
        self._stopped = piece.stopped
        if delta.finish is not None:
            last = self._text.finish()
            self._stopped = last.stopped
            return self._finish(delta, piece.text + last.text, piece.logprobs + last.logprobs, said)
        self.overrun = self._stopped
        return TextDelta(delta.index, piece.text, said, piece.logprobs, delta.queue_s)

    def _finish(
        self, delta: Delta, text: str, logprobs: tuple[TextLogprob, ...], token_ids: tuple[int, ...]
    ) -> TextDelta:
        assert delta.finish is not None
        self.finished = True
        finish = delta.finish
        if self._stopped and finish.reason != "error":
            # Tokens the engine computed before it heard of the stop string are nobody's.
            accepted = min(finish.accepted, self._tokens)
            finish = replace(finish, reason="stop", completion_tokens=self._tokens, accepted=accepted)
        return TextDelta(delta.index, text, token_ids, logprobs, delta.queue_s, finish, self._text.matched)


def singly(delta: Delta) -> Iterator[Delta]:
    """A delta token by token, for who may have enough after any of them; the last part carries the finish."""
    most = len(delta.token_ids)
    if most < 2:
        yield delta
        return
    for at, token in enumerate(delta.token_ids, start=1):
        entries = delta.logprobs[at - 1 : at]
        finish = delta.finish if at == most else None
        yield Delta(delta.request_id, delta.index, (token,), entries, queue_s=delta.queue_s, finish=finish)


def merge(deltas: Sequence[Delta]) -> list[Delta]:
    """One delta per choice, in order of first appearance."""
    if len(deltas) == 1:
        return list(deltas)
    by_choice: dict[int, list[Delta]] = {}
    for delta in deltas:
        by_choice.setdefault(delta.index, []).append(delta)
    return [_joined(parts) for parts in by_choice.values()]


def _joined(parts: list[Delta]) -> Delta:
    """One choice's deltas as one: all tokens, and the account of the last."""
    last = parts[-1]
    if len(parts) == 1:
        return last
    return Delta(
        last.request_id,
        last.index,
        tuple([token for part in parts for token in part.token_ids]),
        tuple([entry for part in parts for entry in part.logprobs]),
        queue_s=last.queue_s,
        finish=last.finish,
    )
