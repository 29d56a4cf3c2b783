"""A mixture of experts: which ones a token passes, and their products with tokens sorted by expert."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.mixture import MixtureWeights
from headgate.engine.kernels.triton.by_expert import by_expert
from headgate.engine.kernels.triton.few import Unnormed
from headgate.engine.kernels.triton.few_experts import FewExperts, likeliest
from headgate.engine.kernels.triton.launch import begin, overlapping, wait
from headgate.engine.kernels.triton.linear import takes
from headgate.engine.kernels.triton.products import Tile, row_product, tile_product
from headgate.engine.kernels.triton.rows import Rounded, exact, swiglu, taken
from headgate.engine.kernels.triton.stored import Fp8Format, Stored
from headgate.engine.quant.linear import Linear

_ALONE = 32
"""Pairs of token and expert up to which each is a tile of its own: sorting them would take longer than it saves, as few
experts are chosen twice, and their weights then come from the second-level cache."""


@triton.jit
def _route(
    logits: tl.tensor,
    weights: tl.tensor,
    chosen: tl.tensor,
    count: tl.tensor,
    per_token: tl.constexpr,
    block: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per token."""
    begin(pdl)
    wait(pdl)
    token = tl.program_id(0).to(tl.int64)
    likeliest(logits + token * count, chosen + token * per_token, weights + token * per_token, count, per_token, block)


@triton.jit
def _product(
    x: tl.tensor,
    x_scales: tl.tensor,
    span: tl.tensor,
    weight: tl.tensor,
    scales: tl.tensor,
    groups: tl.tensor,
    bias: tl.tensor,
    limit: tl.tensor,
    out: tl.tensor,
    pairs: tl.tensor,
    experts: tl.tensor,
    count: tl.tensor,
    most: tl.tensor,
    share: tl.tensor,
    inputs: tl.tensor,
    outputs: tl.tensor,
    fmt: tl.constexpr,
    gated: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per tile of pairs of one expert and run of its outputs; pair p reads row p // `share` of x.

    Tiles of one expert follow each other in the launch, so that they find its weights in the second-level cache. Of one
    row each, tiles are the pairs themselves. `gated`: gates and ups are computed in turns and leave as silu(gate) * up,
    which is a third of the traffic; with a `limit` clamped, see `kernels.mixture.clamped`. `bias`: [experts, outputs].
    """
    begin(pdl)
    wait(pdl)
    tile = tl.program_id(0)
    expert = tl.load(experts + tile).to(tl.int64)
    if expert < count:
        turn = tl.program_id(1) * columns + tl.arange(0, columns)
        column = turn
        if gated:
            column = turn // 2 + turn % 2 * (outputs // 2)
        inside = turn < outputs
        output = expert * outputs + column
        if rows == 1:
            pair = tile.to(tl.int64)
            row = pair // share
            of_row = None if x_scales is None else x_scales + row
            sums = row_product(
                x + row * inputs, of_row, span, weight, scales, groups, output, inside, inputs, fmt, columns, depth
            )[:, None]
            pair, real = pair + tl.zeros([1], tl.int64), tl.full([1], True, tl.int1)
        else:
            pair = tl.load(pairs + tile * rows + tl.arange(0, rows)).to(tl.int64)
            real = pair < most
            sums = tile_product(
                x, x_scales, span, pair // share, real, weight, scales, groups, output, inside, inputs, 0,
                inputs, fmt, rows, columns, depth,
            )  # fmt: skip
        if bias is not None:
            sums += tl.load(bias + output, mask=inside, other=0.0).to(tl.float32)[:, None]
        if gated:
            gate, up = tl.split(tl.permute(tl.reshape(sums, [columns // 2, 2, rows]), [0, 2, 1]))
            # Rounded where the operations one by one round.
            gate = gate.to(out.dtype.element_ty).to(tl.float32)
            up = up.to(out.dtype.element_ty).to(tl.float32)
            if limit is None:
                sums = gate / (1.0 + tl.exp(-gate)) * up
            else:
                # Compared so that what is no number stays none.
                gate = tl.where(gate > limit, limit, gate)
                up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up))
                sums = gate / (1.0 + tl.exp(-1.702 * gate)) * (up + 1.0)
            turn = tl.program_id(1) * (columns // 2) + tl.arange(0, columns // 2)
            outputs = outputs // 2
        place = out + pair[None, :] * outputs + turn[:, None]
        tl.store(place, sums.to(out.dtype.element_ty), mask=real[None, :] & (turn < outputs)[:, None])


@triton.jit
def _weigh(
    parts: tl.tensor,
    weights: tl.tensor,
    added: tl.tensor,
    gates: tl.tensor,
    out: tl.tensor,
    hidden: tl.tensor,
    per_token: tl.constexpr,
    normalize: tl.constexpr,
    block: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per token and run of columns: its experts' results by their weights, in the order they were chosen.

    `normalize`: the weights are made to sum to one.
    """
    begin(pdl)
    wait(pdl)
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < hidden
    total = tl.zeros([block], tl.float32)
    whole = 0.0
    for turn in tl.static_range(per_token):
        pair = token * per_token + turn
        part = tl.load(parts + pair * hidden + column, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weights + pair)
        total += weight * part
        whole += weight
    if normalize:
        total = total / whole
    if added is not None:
        shared = tl.load(added + token * hidden + column, mask=inside, other=0.0).to(tl.float32)
        total += shared / (1.0 + tl.exp(-tl.load(gates + token)))
    tl.store(out + token * hidden + column, total.to(out.dtype.element_ty), mask=inside)


class TritonMixture:
    """Implements Mixture without waiting for the device: nothing is read back to the host."""

    def __init__(
        self,
        weights: MixtureWeights,
        experts: Iterable[tuple[Stored, Stored]],
        shared: tuple[Linear, Linear] | None,
    ) -> None:
        """`experts`: `gate_up` and `down` of those the router chooses from, in order; `weights` gives the rest.

        `shared`: these layers of the expert that all tokens pass.
        """
        self._per_token, self._normalize = weights.per_token, weights.normalize
        self._count = weights.router.shape[0]
        router = Stored("native", weights.router.shape[1], weights.router.float().contiguous())
        self._shared, self._shared_gate = shared, weights.shared_gate
        self._router_bias = None if weights.router_bias is None else weights.router_bias.float()
        self._gate_up_bias, self._down_bias, self._limit = weights.gate_up_bias, weights.down_bias, weights.limit
        pairs = iter(experts)
        first = next(pairs)
        self._gate_up, self._down = (part.room(self._count) for part in first)
        for number, (gate_up, down) in enumerate(chain([first], pairs)):
            self._gate_up.put(number, gate_up)
            self._down.put(number, down)
        arrivals = torch.zeros(1, dtype=torch.int32, device=router.values.device)
        usual = self._limit is None and self._router_bias is None
        self._few = FewExperts(router, self._gate_up, self._down, self._per_token, arrivals, self._normalize, usual)

    def takes(self, tokens: int) -> Fp8Format | None:
        """As what so many rows come best; None for as they are."""
        return None if self._few.fits(tokens) else self._gate_up.fp8

    def norms(self, tokens: int) -> bool:
        """Whether so many tokens may come `Unnormed`."""
        return tokens == 1 and self._shared is None and self._few.fits(tokens)

    def __call__(self, x: Tensor | Rounded | Unnormed) -> Tensor:
        """See Mixture. The last bits of a token's result may depend on how many it is computed with: tiles differ.

        fp8 experts take rows that were rounded already; one that is to be normed comes where `norms` says so.
        """
        if isinstance(x, Unnormed) or self._few.fits(exact(x).shape[0]):
            return self._by_pair(x if isinstance(x, Unnormed) else exact(x).contiguous())
        x = x if isinstance(x, Rounded) else x.contiguous()
        plain = exact(x)
        tokens, hidden = plain.shape
        if not tokens:
            return plain
        chosen, weights = self._routed(plain)
        most = chosen.numel()
        size = 1 if most <= _ALONE else _tile_rows(most, self._count)
        pairs, experts = (chosen, chosen.flatten()) if size == 1 else by_expert(chosen, self._count, size)
        between, parts = plain.new_empty(most, self._down.inputs), plain.new_empty(most, hidden)
        for given, weight, bias, out, share in (
            (x, self._gate_up, self._gate_up_bias, between, self._per_token),
            (between, self._down, self._down_bias, parts, 1),
        ):
            values, scales, span = taken(given, weight.fmt, size)
            tile = Tile.of(size, weight.fmt, values.element_size())
            _product[(experts.shape[0], triton.cdiv(weight.outputs, tile.columns))](
                values, scales, span, weight.values, weight.scales, weight.groups, bias, self._limit, out, pairs,
                experts, self._count, most, share, weight.inputs, weight.outputs, weight.fmt, weight is self._gate_up,
                size, tile.columns, tile.depth, num_warps=tile.warps, num_stages=tile.stages, **overlapping(),
            )  # fmt: skip
        added, gates = self._passed_by_all(x)
        out, block = torch.empty_like(plain), min(1024, triton.next_power_of_2(hidden))
        grid = tokens, triton.cdiv(hidden, block)
        _weigh[grid](
            parts, weights, added, gates, out, hidden, self._per_token, self._normalize, block, **overlapping()
        )
        return out

    def _by_pair(self, x: Tensor | Unnormed) -> Tensor:
        """Of few tokens."""
        chosen, shares, normed = self._few.routed(x)
        added, gates = (None, None) if isinstance(x, Unnormed) else self._passed_by_all(x)
        return self._few.passed(normed, chosen, shares, added, gates)

    def _routed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Experts int32 [tokens, per_token] and their weights, float32."""
        # In float32 whatever the dtype: what is nearly a tie should not be decided by rounding.
        logits = F.linear(x.float(), self._few.router.values, self._router_bias)
        weights = logits.new_empty(x.shape[0], self._per_token)
        chosen = torch.empty_like(weights, dtype=torch.int32)
        block = triton.next_power_of_2(self._count)
        _route[(x.shape[0],)](
            logits, weights, chosen, self._count, self._per_token, block, num_warps=4, **overlapping()
        )
        return chosen, weights

    def _passed_by_all(self, x: Tensor | Rounded) -> tuple[Tensor | None, Tensor | None]:
        """What the shared expert makes of x, and the logits of its gate; none without one."""
        if self._shared is None or self._shared_gate is None:
            return None, None
        gate_up, down = self._shared
        tokens = exact(x).shape[0]
        given: Any = x if takes(gate_up, tokens) else exact(x)
        between: Any = swiglu(gate_up(given), takes(down, tokens))
        return down(between), F.linear(exact(x).float(), self._shared_gate.float())

    @property
    def nbytes(self) -> int:
        """See Mixture."""
        small = self._shared_gate, self._router_bias, self._gate_up_bias, self._down_bias
        gate = sum(tensor.nbytes for tensor in small if tensor is not None)
        shared = sum(layer.nbytes for layer in self._shared) if self._shared is not None else 0
        return self._few.router.nbytes + gate + shared + self._gate_up.nbytes + self._down.nbytes

    @property
    def expert_nbytes(self) -> int:
        """See Mixture."""
        return (self._gate_up.nbytes + self._down.nbytes) // self._count


def _tile_rows(pairs: int, experts: int) -> int:
    """Rows of a tile: about as many as an expert has on average, from tensor cores' least to what keeps them busy."""
    average: int = triton.next_power_of_2(triton.cdiv(pairs, experts))
    return min(max(average, 16), 128)
