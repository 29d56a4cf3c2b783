"""Tokens that steps check: whose they are, and whether they are worth it.

A sequence's own draft or its prompt say something for nothing. Where no step gains by that, a small model may be asked.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.sequence import Sequence
from headgate.engine.speculation.drafter import Drafter
from headgate.engine.speculation.lookup import Lookup
from headgate.engine.speculation.odds import Prior
from headgate.engine.speculation.planner import Planner
from headgate.engine.stepping.found import Sampled

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Proposed:
    """What a step checks.

    Attributes:
        tokens: by sequence.
        by_model: whether a small model said so.
        read: whether that model read something instead, so that the step takes longer than others of its kind.
    """

    tokens: dict[Sequence, Seq[int]] = field(default_factory=dict)
    by_model: bool = False
    read: bool = False

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.tokens)


class Proposing:
    """Of one model. The step thread's own, but for `counts`, which others may read."""

    def __init__(self, *, lookup: bool = False) -> None:
        """`lookup`: whether prompts and answers are looked through for what may follow."""
        self._lookup = lookup
        self._first, self._further = Prior(1, 1), Prior(3, 1)  # of look-ups
        self._drafter: Drafter | None = None
        self._planner, self._model_planner = Planner(), Planner()
        self.counts: dict[str, tuple[int, int]] = {}
        """Tokens that were proposed unasked, by whose they were (`prompt`, `model`): right ones, and wrong ones."""

    def draft_with(self, drafter: Drafter) -> None:
        """Ask a small model from now on."""
        self._drafter = drafter

    def begin(self, sequence: Sequence) -> None:
        """A sequence comes."""
        if self._lookup and sequence.draft is None and sequence.checkable:
            sequence.lookup = Lookup(sequence.prompt_length, self._first.begin(), self._further.begin())

    def end(self, sequence: Sequence) -> None:
        """It has ended."""
        if self._drafter is not None:
            self._drafter.end(sequence)

    def propose(self, chunks: Seq[Chunk], room: int) -> Proposed:
        """What a step of these chunks gains by, which may have `room` tokens more."""
        known = [chunk.sequence.draft or chunk.sequence.lookup for chunk in chunks]
        plan = self._planner.plan(chunks, known, room)
        if plan:
            found = {
                chunks[at].sequence: guess.propose(plan[at]) for at, guess in enumerate(known) if at in plan and guess
            }
            return Proposed(found)
        if self._drafter is None or any(chunk.count > 1 for chunk in chunks):
            return Proposed()
        try:
            return self._ask(self._drafter, chunks, room)
        except Exception:
            # Whatever is wrong with the small model, the large one can do without.
            logger.exception("a small model that drafts failed; it is not asked any more")
            self._drafter.give_up()
            self._drafter = None
            return Proposed()

    def _ask(self, drafter: Drafter, chunks: Seq[Chunk], room: int) -> Proposed:
        asked = [drafter.guess(c.sequence) if c.samples and c.sequence.checkable else None for c in chunks]
        plan = {chunks[at].sequence: count for at, count in self._model_planner.plan(chunks, asked, room).items()}
        if not plan:
            return Proposed()
        if drafter.reads([*plan]):
            return Proposed(read=True)
        return Proposed(drafter.propose(plan), by_model=True)

    def see(self, chunks: Seq[Chunk], proposed: Proposed, steps: int, seconds: float) -> None:
        """A step of these chunks came so many times in a row and took so long, all together with what was proposed."""
        if proposed.read or (proposed.by_model and not proposed):
            return  # there was drafting in its time, and nothing came of it
        if not proposed.by_model:
            self._planner.see(chunks, steps, seconds)
        if proposed.by_model or not proposed:
            self._model_planner.see(chunks, steps, seconds)

    def follow(self, found: Sampled, proposed: Proposed) -> None:
        """A sequence has got tokens, or none where its logits were broken; they are its last ones."""
        sequence, guessed = found.sequence, proposed.tokens.get(found.sequence, ())
        if sequence.draft is not None:
            sequence.draft.follow(sequence.tokens, len(found.tokens), 0 if proposed.by_model else len(guessed))
        elif sequence.lookup is not None:
            sequence.lookup.follow(sequence.tokens, len(found.tokens))
        if not guessed or (sequence.draft is not None and not proposed.by_model):
            return
        pairs = enumerate(zip(guessed, found.tokens, strict=False))
        held = next((at for at, (guess, token) in pairs if guess != token), min(len(guessed), len(found.tokens)))
        if proposed.by_model and self._drafter is not None:
            self._drafter.checked(sequence, len(guessed), held)
        source = "model" if proposed.by_model else "prompt"
        right, wrong = self.counts.get(source, (0, 0))
        self.counts[source] = right + held, wrong + len(guessed) - held
