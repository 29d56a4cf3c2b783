"""The first token of a long prompt after a restart: computed again, or its keys and values read from disk."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import click

from headgate.bench.engine.speed import EngineBench, started
from headgate.bench.engine.workloads import Workload
from headgate.engine.kv.tiers import TierStats
from headgate.engine.settings import EngineSettings, ModelSpec

_WARM_UP = Workload("warm-up", ((16, 4),))
_DISK_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class Restarts:
    """Seconds to the first token by engines that have just started, one for each round.

    Attributes:
        computed_s: of an engine that keeps nothing.
        cached_s: with files that are still in the page cache.
        read_s: with files that are not.
        cached_load_s: of `cached_s`, until keys and values were in the pool.
        read_load_s: likewise of `read_s`.
        tokens: of the prompt.
        loaded: of these, tokens whose keys and values were read.
        nbytes: of their files.
    """

    computed_s: list[float]
    cached_s: list[float]
    read_s: list[float]
    cached_load_s: list[float]
    read_load_s: list[float]
    tokens: int
    loaded: int
    nbytes: int

    def lines(self) -> list[str]:
        """What a reader wants to know, median over the rounds first."""
        ways = (("computed", self.computed_s, None), ("from the page cache", self.cached_s, self.cached_load_s),
                ("from disk", self.read_s, self.read_load_s))  # fmt: skip
        lines = []
        for name, taken, loads in ways:
            line = f"  {name:20} {_spread(taken)}"
            if loads is not None:
                rate = self.nbytes / statistics.median(loads) / 1e9
                gain = statistics.median(self.computed_s) / statistics.median(taken)
                line += f", {gain:.1f} times as fast; loading {_spread(loads)}, {rate:.2f} GB/s"
            lines.append(line)
        return lines


def restarts(settings: EngineSettings, spec: ModelSpec, tokens: int, rounds: int) -> Restarts:
    """Start engines one after the other, the first token of the same prompt from each."""
    found = Restarts([], [], [], [], [], tokens, tokens // settings.block_size * settings.block_size, 0)
    with tempfile.TemporaryDirectory() as scratch:
        kept = replace(settings, prefix_cache=True, kv_disk_path=Path(scratch), kv_disk_bytes=_DISK_BYTES)
        _ask(kept, spec, tokens)
        for _ in range(rounds):
            found.computed_s.append(_ask(replace(settings, prefix_cache=False), spec, tokens)[0])
            for taken, loads, before in (
                (found.cached_s, found.cached_load_s, lambda: None),
                (found.read_s, found.read_load_s, lambda: _forget_pages(Path(scratch))),
            ):
                seconds, tiers = _ask(kept, spec, tokens, before)
                if tiers.disk_tokens != found.loaded or tiers.short_loads:
                    raise click.ClickException(f"of {found.loaded} tokens {tiers.disk_tokens} came from disk in time")
                taken.append(seconds)
                loads.append(tiers.load_seconds)
    block_bytes = tiers.disk_bytes // tiers.disk_blocks
    return replace(found, nbytes=found.loaded // settings.block_size * block_bytes)


def _ask(
    settings: EngineSettings, spec: ModelSpec, tokens: int, before: Callable[[], None] = lambda: None
) -> tuple[float, TierStats]:
    """Seconds to the first token, and what the tiers did then."""
    with started(settings, spec) as engine:
        bench, ids = EngineBench(engine, spec.name), min(engine.models[spec.name].info.vocab_size, 3000) - 5
        bench.run(_WARM_UP)
        before()
        prompt = tuple(5 + number * number % ids for number in range(tokens + 1))
        taken = bench.time([(prompt, 1)]).total_s
    return taken, engine.models[spec.name].stats().tiers or TierStats()


def _forget_pages(folder: Path) -> None:
    """Have the system read the files from the disk again."""
    for path in folder.glob("*/*"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _spread(taken: list[float]) -> str:
    ms = [seconds * 1e3 for seconds in taken]
    return f"{statistics.median(ms):.1f} ms ({min(ms):.1f} to {max(ms):.1f})"
