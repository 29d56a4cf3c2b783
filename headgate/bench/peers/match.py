"""Ours against theirs: rounds in alternation, compared neighbour by neighbour."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from headgate.bench.engine.workloads import Prompts, Workload
from headgate.bench.peers.entrants import Entrant
from headgate.bench.peers.process import EngineFailed, EngineProcess, ours
from headgate.bench.peers.protocol import About, Refused, Round
from headgate.gateway import WAITING


@dataclass(frozen=True, slots=True)
class Match:
    """One workload of one pair. `ours[i]` and `theirs[i]` ran one after the other on the same prompts."""

    model: str
    weights: str
    peer: str
    workload: str
    requests: tuple[tuple[int, int], ...]
    our_about: About
    their_about: About | None
    ours: tuple[Round, ...] = ()
    theirs: tuple[Round, ...] = ()
    reason: str = ""
    """Why there are no rounds."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a later run of the same replaces."""
        return self.model, self.weights, self.peer, self.workload

    def tokens_s(self, rounds: Sequence[Round]) -> float:
        """Median tokens per second: of the prompt where one token is wanted of each, otherwise new ones."""
        new = sum(new for _, new in self.requests)
        tokens = sum(prompt for prompt, _ in self.requests) if new == len(self.requests) else new
        return tokens / statistics.median(r.total_s for r in rounds)

    def decode_tokens_s(self, rounds: Sequence[Round]) -> float | None:
        """Median tokens per second once every request has its first; None for prompts or where nobody can tell."""
        rates = [r.decode_tokens / r.decode_s for r in rounds if r.decode_s and r.decode_tokens]
        return statistics.median(rates) if len(rates) == len(rounds) and rates else None

    @property
    def ratios(self) -> tuple[float, ...]:
        """Ours over theirs in tokens per second, of neighbours."""
        return tuple(b.total_s / a.total_s for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def decode_ratios(self) -> tuple[float, ...]:
        """The same over the decode-only part; empty where one side cannot tell."""
        rates = [
            (a.decode_tokens / a.decode_s) / (b.decode_tokens / b.decode_s)
            for a, b in zip(self.ours, self.theirs, strict=True)
            if a.decode_s and b.decode_s and a.decode_tokens and b.decode_tokens
        ]
        return tuple(rates) if len(rates) == len(self.ours) else ()


def warm_up(workload: Workload) -> Workload:
    """The same requests with few new tokens: whatever is compiled or allocated per shape is by then."""
    return Workload("warm-up", tuple((prompt, min(new, 3)) for prompt, new in workload.requests))


def play(
    model: str,
    checkpoint: Path,
    weights: str,
    against: Sequence[Entrant],
    workloads: Sequence[Workload],
    *,
    peers: Path,
    threads: int,
    rounds: int,
    say: Callable[[str], None],
) -> Iterator[Match]:
    """Run every pair on every workload. A side that cannot run one yields a match without rounds that says why.

    So does what is left for a peer whose process has ended.

    Raises:
        EngineFailed: our own has.
    """
    log = peers / "bench.log"
    prompts = Prompts(3000)
    with ExitStack() as stack:
        us = stack.enter_context(EngineProcess(ours(checkpoint, weights, threads), log, WAITING))
        for entrant in against:
            blank, left = Match(model, weights, entrant.name, "", (), us.about, None), list(workloads)
            try:
                with EngineProcess(entrant.command(checkpoint, peers, threads), log) as them:
                    while left:
                        say(f"{entrant.name}: {left[0].name}")
                        played = _play_workload(blank, us, them, left[0], prompts, rounds)
                        del left[0]
                        yield played
            except EngineFailed as error:
                if error.engine is us:
                    raise
                for workload in left:
                    yield replace(blank, workload=workload.name, requests=workload.requests, reason=str(error))


def _play_workload(
    blank: Match, us: EngineProcess, them: EngineProcess, workload: Workload, prompts: Prompts, rounds: int
) -> Match:
    told = replace(blank, workload=workload.name, requests=workload.requests, their_about=them.about)
    mine, others = [], []
    try:
        for engine in (us, them):
            engine.run(list(prompts.fill(warm_up(workload))))
        for _ in range(rounds):
            asked = list(prompts.fill(workload))
            mine.append(us.run(asked))
            others.append(them.run(asked))
    except Refused as refusal:
        return replace(told, reason=str(refusal))
    return replace(told, ours=tuple(mine), theirs=tuple(others))
