"""What a step must read and compute, counted from the shape: the same for every engine but for bytes per weight."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from headgate.bench.ceilings import Ceilings
from headgate.bench.checkpoints import tensor_shapes
from headgate.bench.peers.match import Match
from headgate.bench.peers.protocol import About, Round
from headgate.engine.models.architectures import read_spec


@dataclass(frozen=True, slots=True)
class Place:
    """Where a figure lies under the roofline."""

    intensity: float
    """Operations per byte that must be read."""
    flops: float
    """Operations per second."""
    share: float
    """Of the bandwidth for decoding, of the matrix product for prompts."""


class Footprint:
    """Counts of one shape. The embedding table counts as the head it is (tied) or not at all: rows are looked up."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config`: the checkpoint's `config.json`."""
        spec = read_spec(config)
        sizes = {name: prod(shape) for name, shape in tensor_shapes(config).items()}
        self._stored = sum(sizes.values())
        self._kv_elements = spec.kv_elements_per_token
        # As we keep it; read and written.
        self._state = 2 * sum(each.nbytes for each in spec.state_shapes)
        looked_up = 0 if spec.tied_head else sizes["model.embed_tokens.weight"]
        self._experts = sum(size for name, size in sizes.items() if ".experts." in name)
        self._dense = self._stored - looked_up - self._experts
        self._chosen = spec.experts.per_token / spec.experts.count if spec.experts else 0.0

    def read_share(self, batch: int) -> float:
        """Share of the stored weights that a decode step of `batch` tokens reads, experts chosen uniformly."""
        return (self._dense + self._experts * (1 - (1 - self._chosen) ** batch)) / self._stored

    @property
    def active(self) -> float:
        """Weights a token is multiplied with."""
        return self._dense + self._experts * self._chosen

    def place(self, match: Match, about: About, rounds: tuple[Round, ...], ceilings: Ceilings) -> Place | None:
        """Where the median of the rounds lies; None for mixed work, where no one limit holds."""
        if len(set(match.requests)) > 1:
            return None
        batch, (prompt, new) = len(match.requests), match.requests[0]
        weights = about.weight_bytes
        if new == 1:
            flops = 2 * self.active * batch * prompt / statistics.median(r.total_s for r in rounds)
            read = weights * self.read_share(batch * prompt)
            return Place(2 * self.active * batch * prompt / read, flops, flops / ceilings.peak(about.products))
        tokens_s = match.decode_tokens_s(rounds)
        if tokens_s is None:
            return None
        context = (prompt + new / 2) * self._kv_elements * about.kv_element_bytes
        read = weights * self.read_share(batch) + batch * (context + self._state)
        seconds = batch / tokens_s
        work = 2 * self.active * batch
        return Place(work / read, work / seconds, read / seconds / ceilings.read_bytes_s)
