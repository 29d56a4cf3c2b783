"""What load is played on, and with which parts of the price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headgate.routing.types import Tier

Devices = Literal["two", "copies"]
"""The pair, or two copies of the small model, one of which another team asks by its name for half of all requests. Each
model has a device of its own, which is one thread here."""
Signal = Literal["queue", "kv"]
Variant = Literal["both", "no queue", "no kv", "neither", "in turn"]
"""Which signals count; in turn: no router, but conversations dealt to the models one after the other."""
SIGNALS: Mapping[Variant, Sequence[Signal]] = {
    "both": ("queue", "kv"),
    "no queue": ("kv",),
    "no kv": ("queue",),
    "neither": (),
    "in turn": (),
}


@dataclass(frozen=True, slots=True)
class SetUp:
    """Models, and who asks what of them.

    Attributes:
        models: by id, with the name of the checkpoint and the tier; the share of the second one is told.
        asks: the model that requests name.
        others: share of all requests that another team makes, which names the first model.
        variants: that are played.
    """

    models: Mapping[str, tuple[str, Tier]]
    asks: str
    others: float
    variants: Sequence[Variant]

    @property
    def first(self) -> str:
        """Id of the first model."""
        return next(iter(self.models))

    @property
    def second(self) -> str:
        """Id of the second one."""
        return list(self.models)[1]


SETUPS: Mapping[Devices, SetUp] = {
    "two": SetUp(
        {"student": ("student", "small"), "teacher": ("teacher", "large")},
        "auto",
        0.0,
        ("both", "no queue", "no kv", "neither"),
    ),
    "copies": SetUp(
        {"copy-1": ("student", "small"), "copy-2": ("student", "small")},
        "small",
        0.5,
        ("both", "no queue", "no kv", "neither", "in turn"),
    ),
}
