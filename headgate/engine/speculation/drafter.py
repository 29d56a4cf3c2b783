"""A small model of the same device drafts for a large one: it says what it would go on with, and the large one checks.

It draws by the same noise of (seed, choice, position): where both models think alike, drawn tokens are the same, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

from headgate.engine.runner import Runner
from headgate.engine.scheduler import Scheduler
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.sequence import Sequence
from headgate.engine.speculation.odds import Odds, Prior, run
from headgate.engine.stepping.found import Sampled
from headgate.engine.stepping.inputs import Interrupt

_UNREAD = 32
"""Tokens that the small model may lack and still draft in the same step; more it reads before, in a step without."""
_READ = 256
"""Tokens that it reads in such a step, at most."""


@dataclass(slots=True, eq=False)
class Follower:
    """Implements Guess: a sequence of the large model as the small one knows it."""

    sequence: Sequence
    """The small model's; its tokens are those of the large one's, then what was proposed last."""
    odds: Odds
    agreed: int = 0
    """Leading tokens that both have."""
    left: int = 0
    """Tokens that may be proposed."""
    lost: bool = False
    """Whether the small model can say no more of it: it does not know a token, or what it made of them was broken."""

    @property
    def first(self) -> float:
        """See Guess."""
        return self.odds.share

    def expected(self, count: int) -> float:
        """See Guess."""
        return self.odds.share * run(self.odds.share, count)

    @property
    def unread(self) -> int:
        """Known tokens that the small model has not computed."""
        return len(self.sequence.tokens) - self.sequence.computed


class Drafter:
    """Drafts of one small model for one large one. The step thread's own."""

    def __init__(
        self, scheduler: Scheduler, runner: Callable[[], Runner | None], *, context_length: int, vocab_size: int
    ) -> None:
        """Draft with the model of this scheduler and runner, which has none while it sleeps.

        `context_length`: of that model. `vocab_size`: the lesser one of both models; they have one tokenizer.
        """
        self._tables, self._tiers, self._lent, self._runner = scheduler.tables, scheduler.tiers, scheduler.lent, runner
        self._context_length, self._vocab_size = context_length, vocab_size
        self._most = scheduler.limits.max_step_tokens
        self._prior = Prior(3, 1)
        self._followers: dict[Sequence, Follower] = {}
        self._interrupt = Interrupt()

    def guess(self, sequence: Sequence) -> Follower | None:
        """What it may propose of a sequence of the large model; None if nothing."""
        # What it would make of places where a picture is says little.
        if self._runner() is None or sequence.request.sights:
            return None
        follower = self._followers.get(sequence)
        if follower is None:
            follower = self._followers[sequence] = Follower(self._copy(sequence), self._prior.begin())
        self._catch_up(follower, sequence.tokens)
        # Whoever has more to read than will be written gains nothing by it.
        worth = follower.unread <= max(_UNREAD, sequence.limit - len(sequence.tokens))
        return follower if worth and not follower.lost else None

    def reads(self, sequences: Seq[Sequence]) -> bool:
        """Have the small model read what it lacks of these, if that is much; False, with nothing done, if it is not."""
        followers = [self._followers[sequence] for sequence in sequences]
        room, chunks = min(_READ, self._most), list[Chunk]()
        for follower in followers:
            own = follower.sequence
            if not own.table.blocks:
                self._lent.begin(own)
            count = min(room, follower.unread - 1)
            if (
                follower.unread <= min(_UNREAD, self._most)
                or count < 1
                or not self._lent.extend(own, own.computed + count)
            ):
                continue
            chunks.append(Chunk(own, own.computed, count))
            room -= count
        if not chunks:
            return False
        self._run(chunks, 1)
        return True

    def propose(self, counts: Mapping[Sequence, int]) -> dict[Sequence, Seq[int]]:
        """So many tokens for each of these sequences, or fewer where the small model cannot."""
        followers = [self._followers[sequence] for sequence in counts]
        # All get equally many, and none more than it has context for.
        longest = min(max(counts.values()), *(follower.left for follower in followers))
        room, chunks = self._most, list[Chunk]()
        for follower in followers:
            own, unread = follower.sequence, follower.unread
            if unread <= room and self._lent.extend(own, len(own.tokens) + longest):
                chunks.append(Chunk(own, own.computed, unread))
                room -= unread
        asked = {chunk.sequence for chunk in chunks}
        while chunks and longest > 0:
            before = {chunk.sequence: len(chunk.sequence.tokens) for chunk in chunks}
            chunks = self._run(chunks, longest)
            # All that are left got equally many; the first one may be among those that broke.
            longest -= len(chunks[0].sequence.tokens) - before[chunks[0].sequence] if chunks else 0
        found = dict[Sequence, Seq[int]]()
        for sequence, count in counts.items():
            follower = self._followers[sequence]
            # It had a table when it was asked.
            follower.lost = follower.sequence in asked and not follower.sequence.table.blocks
            tokens = follower.sequence.tokens[follower.agreed : follower.agreed + count]
            beyond = next((at for at, token in enumerate(tokens) if token >= self._vocab_size), len(tokens))
            if beyond:
                found[sequence] = tokens[:beyond]
        return found

    def checked(self, sequence: Sequence, proposed: int, held: int) -> None:
        """Of so many tokens that were proposed, these were the answer's."""
        odds = self._followers[sequence].odds
        for number in range(min(held + 1, proposed)):
            odds.see(so=number < held)

    def give_up(self) -> None:
        """Let go of all blocks, whose contents may be broken."""
        for follower in self._followers.values():
            self._discard(follower.sequence)
        self._followers.clear()

    def end(self, sequence: Sequence) -> None:
        """The sequence has ended."""
        follower = self._followers.pop(sequence, None)
        if follower is not None:
            self._lent.end(follower.sequence)

    def _copy(self, sequence: Sequence) -> Sequence:
        asked, most = sequence.request, self._vocab_size
        sampling = replace(
            asked.sampling,
            logprobs=None,
            # Its logits have no place for tokens that the small model lacks, and none that the large one lacks is said.
            logit_bias=tuple((token, by) for token, by in asked.sampling.logit_bias if token < most),
            begin_suppress_tokens=tuple(t for t in asked.sampling.begin_suppress_tokens if t < most),
        )
        request = replace(asked, sampling=sampling, n=1, draft=())
        return Sequence(
            request=request,
            choice=sequence.choice,
            arrival=sequence.arrival,
            tokens=[],
            limit=self._context_length,
            ends=frozenset(),
            table=self._tables.table(asked.tenant, whole=True),
            noise=sequence.noise,
        )

    def _catch_up(self, follower: Follower, known: list[int]) -> None:
        """Take what was proposed and is not the answer's back, and add what is."""
        own, at = follower.sequence, follower.agreed
        mine = own.tokens
        both = min(len(mine), len(known))
        while at < both and mine[at] == known[at]:
            at += 1
        new = known[at:]
        del mine[at:]
        mine.extend(new)
        # The last known token is computed in any case, since its logits are what is wanted: more may have been drafted
        # of a sequence than was proposed.
        own.computed = min(own.computed, at, len(known) - 1)
        follower.agreed = len(known)
        if own.table.blocks:
            self._tables.publish(own.table, mine, own.computed)
            self._tables.give_back(own.table, own.computed)
        follower.lost = follower.lost or any(token >= self._vocab_size for token in new)
        follower.left = max(0, self._context_length - len(mine) - 1)

    def _discard(self, own: Sequence) -> None:
        """Take its blocks back, and wipe them: what is not finite must be nobody's."""
        freed, runner = self._lent.end(own, discard=True), self._runner()
        if runner is not None:
            runner.discard(freed, self._tables.unused_pages(freed))

    def _run(self, chunks: list[Chunk], most: int) -> list[Chunk]:
        """A step of these, or up to `most` where they come in a row; what comes next of those that got tokens."""
        runner = self._runner()
        assert runner is not None, "there is nothing to run of a model that sleeps"
        if self._tiers is not None:
            self._tiers.save()
        # Steps that are begun ahead are of the model's own rows.
        repeats = runner.repeats(chunks) and not runner.ahead(chunks)
        found = runner.run(chunks, most if repeats else 1, self._interrupt, repeats=repeats)
        for chunk in chunks:
            chunk.sequence.computed = chunk.start + chunk.count
        rest = list[Chunk]()
        for one in found:
            own = one.sequence
            if not isinstance(one, Sampled) or one.broken:
                self._discard(own)
                continue
            own.tokens.extend(one.tokens)
            own.computed = len(own.tokens) - 1
            rest.append(Chunk(own, own.computed, 1))
        return rest
