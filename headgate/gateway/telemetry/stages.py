"""The way of a request that has ended, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headgate.gateway.telemetry.record import RequestRecord


@dataclass(frozen=True, slots=True)
class Stage:
    """From when to when, in seconds since the request came."""

    name: str
    start_s: float
    end_s: float


def stages(record: RequestRecord) -> Iterator[Stage]:
    """Those that the request came to: admit, cache, route, generate. What others did for it is not among them."""
    total, opened = record.total_s, record.opened
    admitted = total if record.admitted_s is None else record.admitted_s
    yield Stage("admit", 0.0, admitted)
    if record.admitted_s is None or opened is None:
        return
    at = admitted
    for name, took_s in (("cache", opened.looked_s), ("route", opened.planned_s)):
        if took_s is not None:
            end = min(at + took_s, total)
            yield Stage(name, at, end)
            at = end
    if opened.age_s is None:
        yield Stage("generate", at, total)
