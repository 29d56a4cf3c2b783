"""The gated delta rule of Qwen3-Next and Qwen3.5: layers that read their past in a matrix, not in keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.models.spec import DeltaSpec
from headgate.engine.models.state_passes import StateKey, StatePasses, States
from headgate.engine.quant.linear import Linear

_CHUNK = 64
"""Tokens that are computed by products of matrices at a time."""
_CONVOLVED, _RECURRENT = ("conv", 0), ("recurrent", 0)


@dataclass(frozen=True, slots=True)
class GatedDelta:
    """What is between a layer's projections. Implements Stateful.

    For each value head a matrix S [key_dim, value_dim], zero at first. A token with key k, value v, decay a in (0, 1)
    and strength b in (0, 1), its query q and key of length 1, makes S = a S + k (b (v - a S' k))' and gives S' q.
    Queries, keys and values come out of a causal convolution over some tokens.

    Source: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464.

    Attributes:
        place: of its states among those of the model: the convolution's last inputs, and S.
        gates: from what the layer reads to strengths and decays, [2 * value_heads].
        convolution: [tokens, channels] float32, of queries, keys and values.
        decay: [value_heads] float32, below 0.
        decay_bias: [value_heads] float32.
        norm: [value_dim], of what heads give, which is gated behind it.
    """

    spec: DeltaSpec
    place: int
    gates: Linear
    convolution: Tensor
    decay: Tensor
    decay_bias: Tensor
    norm: Tensor
    norm_eps: float

    @property
    def keys(self) -> Mapping[StateKey, int]:
        """See Stateful."""
        return {_CONVOLVED: self.place, _RECURRENT: self.place + 1}

    def call(self, hidden: Tensor, states: States | None) -> tuple[Tensor, States]:
        """See Stateful: [sequences, tokens, values] of the projection's outputs and the gates behind them."""
        spec = self.spec
        values = spec.value_heads * spec.value_dim
        widths = [spec.channels, values, spec.value_heads, spec.value_heads]
        mixed, gate, strength, rate = torch.split(hidden, widths, dim=-1)
        mixed, convolved = self._convolve(mixed, None if states is None else states[_CONVOLVED])
        keys = spec.key_heads * spec.key_dim
        q, k, v = torch.split(mixed, [keys, keys, values], dim=-1)
        q, k = (_unit(part.reshape(*part.shape[:2], spec.key_heads, spec.key_dim)) for part in (q, k))
        each = spec.value_heads // spec.key_heads
        # [sequences, heads, tokens, ...] from here.
        q, k = (part.repeat_interleave(each, dim=2).transpose(1, 2) for part in (q * spec.key_dim**-0.5, k))
        by_head = (*v.shape[:2], spec.value_heads, spec.value_dim)
        v = v.reshape(by_head).transpose(1, 2)
        strength = strength.float().sigmoid().transpose(1, 2)
        decay = (self.decay * F.softplus(rate.float() + self.decay_bias)).transpose(1, 2)
        before = v.new_zeros(*v.shape[:2], spec.key_dim, spec.value_dim) if states is None else states[_RECURRENT]
        read = _step if v.shape[2] == 1 else _read
        found, after = read(q, k, v, strength, decay, before)
        found = found.transpose(1, 2)
        found = found * torch.rsqrt(found.square().mean(-1, keepdim=True) + self.norm_eps)
        found = self.norm * found * F.silu(gate.float()).reshape(by_head)
        return found.flatten(2).to(hidden.dtype), {_CONVOLVED: convolved, _RECURRENT: after}

    def _convolve(self, mixed: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """[sequences, tokens, channels] in float32, and the inputs that the next tokens see."""
        inputs, taps = mixed.float(), len(self.convolution)
        whole = F.pad(inputs, (0, 0, taps - 1, 0)) if before is None else torch.cat([before, inputs], dim=1)
        if whole.shape[1] == taps:
            found = (whole * self.convolution).sum(1, keepdim=True)
        else:
            weight = self.convolution.t().unsqueeze(1)
            found = F.conv1d(whole.transpose(1, 2), weight, groups=len(weight)).transpose(1, 2)
        return F.silu(found), whole[:, 1 - taps :]


class PlainDeltaPasses:
    """Implements DeltaPasses by stock operators."""

    def __init__(self, batch: AttentionBatch, device: torch.device) -> None:
        self._passes = StatePasses(batch, device, singly=False)

    def __call__(self, layer: GatedDelta, mixed: Tensor, gates: Tensor) -> Tensor:
        """See DeltaPasses."""
        found = self._passes(layer, torch.cat([mixed, gates], dim=-1).unsqueeze(0))
        assert isinstance(found, Tensor)
        return found[0]


def _unit(heads: Tensor) -> Tensor:
    return heads * torch.rsqrt(heads.square().sum(-1, keepdim=True) + 1e-6)


def _step(q: Tensor, k: Tensor, v: Tensor, strength: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One token of each sequence: [sequences, heads, 1, value_dim], and the states behind it, in their own place."""
    state *= decay.exp().unsqueeze(-1)
    change = (v - k @ state) * strength.unsqueeze(-1)
    state.view(-1, *state.shape[2:]).baddbmm_(k.transpose(-1, -2).flatten(0, 1), change.flatten(0, 1))
    return q @ state, state


def _read(q: Tensor, k: Tensor, v: Tensor, strength: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Several tokens of each sequence, some at a time.

    Within a chunk the changes u to the state follow from each other, u_i = b_i (v_i - what S and the u before have at
    k_i): one triangular system for all of them.
    """
    found = []
    for start in range(0, v.shape[2], _CHUNK):
        some = slice(start, start + _CHUNK)
        qs, ks, vs, b = q[:, :, some], k[:, :, some], v[:, :, some], strength[:, :, some].unsqueeze(-1)
        sums = decay[:, :, some].cumsum(-1)
        # What is left at token i of what token j has put in; above the diagonal it would overflow.
        left = (sums.unsqueeze(-1) - sums.unsqueeze(-2)).tril().exp().tril()
        since = sums.exp().unsqueeze(-1)
        system = (b * (ks @ ks.transpose(-1, -2)) * left).tril(-1)
        wanted = b * (vs - since * (ks @ state))
        changes = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
        found.append(since * (qs @ state) + ((qs @ ks.transpose(-1, -2)) * left) @ changes)
        until = (sums[..., -1:] - sums).exp().unsqueeze(-1)
        state = since[..., -1:, :] * state + (ks * until).transpose(-1, -2) @ changes
    return torch.cat(found, dim=2), state
