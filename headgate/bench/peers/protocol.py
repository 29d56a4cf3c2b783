"""What a measured engine's process says and is told: one line of JSON each way per round.

Standard library only: this module and the `drive_*` ones also run under the interpreters of the peers' environments.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TextIO

Prompts = Sequence[tuple[Sequence[int], int]]
"""(prompt token ids, new tokens wanted) of requests that are submitted at the same moment."""


@dataclass(frozen=True, slots=True)
class About:
    """Who measures: version and settings for the reader, sizes for the shares of the ceiling."""

    version: str
    settings: str
    weight_bytes: int
    """Bytes of all weights as stored, the embedding table included."""
    kv_element_bytes: float
    """Bytes of one number in the KV cache."""
    products: str
    """What matrix products of prompts are computed in: "int8" or "bfloat16"; picks the ceiling."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round. `decode_s` runs from the moment every request has its first token; None where nobody can tell."""

    total_s: float
    decode_s: float | None = None
    decode_tokens: int = 0


class Refused(Exception):
    """The engine has no way to run this workload; the text says why."""


class Stopwatch:
    """Turns arrivals of tokens into a round."""

    def __init__(self, wanted: Sequence[int], clock: Callable[[], float] = time.perf_counter) -> None:
        """Start the clock. `wanted`: new tokens per request."""
        self._clock = clock
        self._missing = list(wanted)
        self._silent = set(range(len(wanted)))
        self._decoded = 0
        self._started = self._all_started = self._ended = clock()

    def step(self, arrivals: Mapping[int, int]) -> None:
        """Note what one step brought, now: new tokens by request."""
        self._ended = self._clock()
        if not self._silent:
            self._decoded += sum(arrivals.values())
        else:
            self._silent -= {request for request, tokens in arrivals.items() if tokens}
            self._all_started = self._ended
        for request, tokens in arrivals.items():
            self._missing[request] -= tokens

    def round(self) -> Round:
        """The round. ValueError where a request got too few tokens or too many."""
        if any(self._missing):
            raise ValueError(f"requests got too few (+) or too many (-) tokens: {self._missing}")
        return Round(self._ended - self._started, self._ended - self._all_started, self._decoded)


def serve(about: About, run: Callable[[Prompts], Round]) -> None:
    """Answer rounds on standard input until it ends. Whatever the engine prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _say(answers, asdict(about))
    for line in sys.stdin:
        try:
            _say(answers, asdict(run([(prompt, new) for prompt, new in json.loads(line)])))
        except Refused as refusal:
            _say(answers, {"refused": str(refusal)})


def _say(answers: TextIO, content: dict[str, object]) -> None:
    print(json.dumps(content), file=answers, flush=True)
