"""The engine's workloads: prompts of random tokens, never repeated, so that no cache can help."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

PROMPT_SEED = 20261121


@dataclass(frozen=True, slots=True)
class Workload:
    """(prompt tokens, new tokens) per request; all are submitted at once."""

    name: str
    requests: tuple[tuple[int, int], ...]

    @property
    def prompt_tokens(self) -> int:
        """Sum over the requests."""
        return sum(prompt for prompt, _ in self.requests)

    @property
    def new_tokens(self) -> int:
        """Sum over the requests."""
        return sum(new for _, new in self.requests)


def prefill() -> Workload:
    """One prompt of 512 tokens, one token out."""
    return Workload("prefill 512", ((512, 1),))


_DECODED = 96


def decode(batch: int, new: int = _DECODED) -> Workload:
    """`batch` prompts of 128 tokens, each continued by `new`; the name says `new` where it is not the usual 96."""
    short = "" if new == _DECODED else f" of {new}"
    return Workload(f"decode b{batch}{short}", ((128, new),) * batch)


def mixed(count: int = 64) -> Workload:
    """`count` prompts of 32 to 512 tokens, continued by 16 to 128; drawn with seed 0."""
    draw = random.Random(0)
    return Workload(f"mixed {count}", tuple((draw.randint(32, 512), draw.randint(16, 128)) for _ in range(count)))


class Prompts:
    """Fresh random prompts over the ids 10 to `vocabulary` - 1 for every call."""

    def __init__(self, vocabulary: int) -> None:
        self._draw = random.Random(PROMPT_SEED)
        self._vocabulary = vocabulary

    def fill(self, workload: Workload) -> Iterator[tuple[tuple[int, ...], int]]:
        """(prompt, new tokens) of each request."""
        for length, new in workload.requests:
            yield tuple(self._draw.choices(range(10, self._vocabulary), k=length)), new
