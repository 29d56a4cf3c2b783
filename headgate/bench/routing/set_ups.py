"""What load is played on, and with which parts of the price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headgate.bench.checkpoints import QWEN3
from headgate.routing.types import Tier

Devices = Literal["two", "copies"]
"""The demo pair, or two copies of a larger model, one of which another team asks by its name for half of all requests.
Each model has a device of its own, which is one thread here."""
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
SLOW: Mapping[str, Any] = {
    **QWEN3,
    "model_type": "qwen3",
    "rope_theta": 10000.0,
    "max_position_embeddings": 2048,
    "hidden_size": 768,
    "intermediate_size": 2304,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 4096,
    "tie_word_embeddings": True,
}
"""Nearly thirty times the demo student's work in each token: a request waits for the engine then, and not for the road
to it. Its weights are random, which nothing but the answers depends on."""


@dataclass(frozen=True, slots=True)
class SetUp:
    """Models, and who asks what of them.

    Attributes:
        models: by id, with the name of the checkpoint and the tier; the share of the second one is told.
        asks: the model that requests name.
        others: share of all requests that another team makes, which names the first model.
        variants: that are played.
        seconds: over which requests arrive, for each variant and load.
        says: whether the models say something. Where they do not, an answer is as long as the right one would be.
    """

    models: Mapping[str, tuple[str, Tier]]
    asks: str
    others: float
    variants: Sequence[Variant]
    seconds: float
    says: bool = True

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
        3.0,
    ),
    "copies": SetUp(
        {"copy-1": ("slow", "small"), "copy-2": ("slow", "small")},
        "small",
        0.5,
        ("both", "no queue", "no kv", "neither", "in turn"),
        10.0,
        says=False,
    ),
}
