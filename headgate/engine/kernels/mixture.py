"""A mixture-of-experts layer: what it is made of, and plain torch that computes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from headgate.engine.quant.fp8 import Fp8Weight
from headgate.engine.quant.linear import Linear, PackedWeight
from headgate.engine.quant.mxfp4 import Mxfp4Weight


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """One expert as checkpoints have it: down(silu(gate(x)) * up(x)).

    `gate_up` [2 * width, hidden], the gates first; `down` [hidden, width].
    """

    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class Fp8Expert:
    """One expert of an fp8 checkpoint; see ExpertWeights."""

    gate_up: Fp8Weight
    down: Fp8Weight


@dataclass(frozen=True, slots=True)
class Mxfp4Expert:
    """One expert of a checkpoint in MXFP4; see ExpertWeights."""

    gate_up: Mxfp4Weight
    down: Mxfp4Weight


@dataclass(frozen=True, slots=True)
class MixtureWeights:
    """A layer in the compute dtype.

    Attributes:
        router: [count, hidden]. It stays in floating point: it is small and decides much.
        experts: `count` of them, in order; read once, so that they need not be in memory together.
        per_token: how many experts a token passes.
        normalize: the chosen experts' weights are made to sum to one.
        shared: the expert every token passes, if there is one, of a width of its own.
        shared_gate: [1, hidden], there iff `shared` is: the sigmoid of its product with a token weighs it.
        router_bias: [count].
        gate_up_bias: [count, 2 * width], the gates first.
        down_bias: [count, hidden].
        limit: gates and ups are clamped by it, see `clamped`; without it an expert is as ExpertWeights says.
    """

    router: Tensor
    experts: Iterable[ExpertWeights]
    per_token: int
    normalize: bool
    shared: ExpertWeights | None = None
    shared_gate: Tensor | None = None
    router_bias: Tensor | None = None
    gate_up_bias: Tensor | None = None
    down_bias: Tensor | None = None
    limit: float | None = None


def clamped(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """gate * sigmoid(1.702 gate) * (up + 1), of gates up to `limit` and ups within it on both sides (gpt-oss)."""
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(ALPHA * gate) * (up + 1)


ALPHA = 1.702
"""Of the gates that `clamped` has."""


@dataclass(frozen=True, slots=True)
class PackedExperts:
    """All experts of a layer as an operator reads them, the shared ones among them: each part [experts, ...].

    `width` is that of an expert before anything was filled up.
    """

    gate_up: PackedWeight
    down: PackedWeight
    width: int


class Mixture(Protocol):
    """The layer, ready to run. A token's result does not depend on which tokens it is computed with."""

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, hidden] to [tokens, hidden]."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        ...

    @property
    def expert_nbytes(self) -> int:
        """Bytes of one of the experts that the router chooses from."""
        ...


class ReferenceMixture:
    """Expert after expert with stock operators: the oracle of the tests, and the fallback."""

    def __init__(self, weights: MixtureWeights, linear: Callable[[Tensor], Linear]) -> None:
        """`linear` makes the layer of a weight [outputs, inputs] in the wanted format."""
        self._per_token, self._normalize = weights.per_token, weights.normalize
        self._router = weights.router
        self._experts = [(linear(expert.gate_up), linear(expert.down)) for expert in weights.experts]
        shared = weights.shared
        self._shared = (linear(shared.gate_up), linear(shared.down)) if shared is not None else None
        self._shared_gate = weights.shared_gate
        self._router_bias = None if weights.router_bias is None else weights.router_bias.float()
        self._biases = weights.gate_up_bias, weights.down_bias
        self._limit = weights.limit

    def __call__(self, x: Tensor) -> Tensor:
        """See Mixture. Tokens are sorted by expert, so that each chosen expert's weights are read once."""
        # In float32 whatever the dtype: what is nearly a tie should not be decided by rounding.
        probabilities = F.linear(x.float(), self._router.float(), self._router_bias).softmax(dim=-1)
        weights, chosen = probabilities.topk(self._per_token, dim=-1)
        if self._normalize:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=len(self._experts)).tolist()
        rows = order // self._per_token
        scale = weights.flatten()[order].unsqueeze(1)
        gathered = x.index_select(0, rows)
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        start = 0
        for expert, count in enumerate(counts):
            if count:
                span = slice(start, start + count)
                out.index_add_(0, rows[span], self._passed(expert, gathered[span]).float() * scale[span])
                start += count
        if self._shared is not None and self._shared_gate is not None:
            gate = torch.sigmoid(F.linear(x.float(), self._shared_gate.float()))
            out += gate * _mlp(self._shared, x).float()
        return out.to(x.dtype)

    def _passed(self, expert: int, x: Tensor) -> Tensor:
        layers, (gate_up_bias, down_bias) = self._experts[expert], self._biases
        if gate_up_bias is None and down_bias is None and self._limit is None:
            return _mlp(layers, x)
        between = layers[0](x)
        if gate_up_bias is not None:
            between = between + gate_up_bias[expert].to(between.dtype)
        gate, up = between.chunk(2, dim=-1)
        y = layers[1](F.silu(gate) * up if self._limit is None else clamped(gate, up, self._limit))
        return y if down_bias is None else y + down_bias[expert].to(y.dtype)

    @property
    def nbytes(self) -> int:
        """See Mixture."""
        shared = sum(layer.nbytes for layer in self._shared) if self._shared is not None else 0
        beside = sum(t.nbytes for t in (self._shared_gate, self._router_bias, *self._biases) if t is not None)
        return self._router.nbytes + beside + shared + sum(g.nbytes + d.nbytes for g, d in self._experts)

    @property
    def expert_nbytes(self) -> int:
        """See Mixture."""
        return sum(layer.nbytes for layer in self._experts[0])


def _mlp(layers: tuple[Linear, Linear], x: Tensor) -> Tensor:
    gate, up = layers[0](x).chunk(2, dim=-1)
    return layers[1](F.silu(gate) * up)
