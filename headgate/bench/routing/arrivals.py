"""Conversations that come at random, whether or not earlier ones have been answered."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from headgate.engine.demo.tasks import FAMILIES, Family, Sample, generate
from headgate.gateway.road.request import Message

_TURNS = 3
_TURN_GAP_S = 0.3
_SYSTEM = "You are a helpful assistant. Answer briefly."


@dataclass(frozen=True, slots=True)
class Arrival:
    """One turn of a conversation, and when it comes, in seconds from the start."""

    at: float
    session: str
    sample: Sample
    messages: tuple[Message, ...]


def arrivals(count: int, rate: float, seed: int) -> list[Arrival]:
    """`count` turns of conversations that come at random, `rate` a second; the earlier turns are answered rightly.

    With an infinite rate all are there at once.
    """
    draw = random.Random(f"arrivals/{seed}")
    samples = generate(count, seed=seed, split="test", families=families(), system=0.0, turns=0.0)
    found: list[Arrival] = []
    start, session = 0.0, 0
    while len(found) < count:
        start += draw.expovariate(rate / _TURNS) if rate < math.inf else 0.0
        session += 1
        at, before = start, [Message("system", _SYSTEM)]
        for _ in range(min(_TURNS, count - len(found))):
            sample = next(samples)
            before.append(Message("user", sample.prompt))
            found.append(Arrival(at, f"{seed}-{session}", sample, tuple(before)))
            before.append(Message("assistant", sample.written))
            at += draw.expovariate(1 / _TURN_GAP_S) if rate < math.inf else 0.0
    return sorted(found, key=lambda arrival: arrival.at)


def families() -> list[Family]:
    """Those whose prompts need no tools, which the gateway does not take."""
    return [family for family in FAMILIES if family.name != "calls"]
