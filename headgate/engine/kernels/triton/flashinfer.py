"""FlashInfer's attention for long prompts, where it is installed and was the faster one when both were tried."""

from __future__ import annotations

import importlib.util
import logging
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from headgate.engine.kernels.interface import AttentionBatch, AttentionShape, KVLayer
from headgate.engine.kernels.triton.plan import Tiles, TritonPlan

logger = logging.getLogger(__name__)

LONG = 2048
"""Tokens of a step's long prompts, together, from which on it is worth its planning; and of the one that is tried."""
_WORKSPACE = 128 << 20
"""Bytes for what its programs leave each other, as FlashInfer's documentation has it."""
_ROUNDS = 5

Ours = Callable[[Tensor, KVLayer, TritonPlan], Tensor]


def installed() -> Any:
    """FlashInfer, or None. It reads the device when it is imported, and may fail to."""
    if importlib.util.find_spec("flashinfer") is None:
        return None
    try:
        return import_module("flashinfer")
    except Exception:
        # Of another package, for whatever reason: ours serve as well.
        logger.exception("FlashInfer is installed and cannot be imported; our own attention serves")
        return None


@dataclass(slots=True)
class _Wrapped:
    """FlashInfer's attention of one shape, and the step it is planned for."""

    wrapper: Any
    planned: TritonPlan | None = None


class PromptAttention:
    """Attention of the long prompts of a step. It belongs to one thread at a time, as its kernels do."""

    def __init__(self, library: Any, seconds: Callable[[Callable[[], object]], float] | None = None) -> None:
        """`library`: FlashInfer. `seconds`: how long a call takes, its work on the device included."""
        self._library = library
        self._seconds = seconds or _seconds
        self._faster: dict[AttentionShape, _Wrapped] = {}
        self._workspace: Tensor | None = None

    def try_out(self, shape: AttentionShape, layers: int, device: torch.device, ours: Ours) -> None:
        """Compile what is missing, and use it from now on if it gives what `ours` gives, sooner.

        What it computes once per step counts by the layers that share it. Compiling takes minutes, once per machine.
        """
        logger.info("trying FlashInfer's attention for prompts, which it compiles the first time: that takes minutes")
        try:
            faster, why = self._compared(shape, layers, device, ours)
        except Exception as error:
            # A compiler may be missing, or a kernel for such heads: ours serve as well.
            logger.warning("FlashInfer's attention is not used: %s: %s", type(error).__name__, error)
            return
        logger.info("FlashInfer's attention is %s: %s", "used for long prompts" if faster else "not used", why)

    def takes(self, shape: AttentionShape, plan: TritonPlan, tiles: Tiles, window: int | None) -> bool:
        """Whether the long prompts of a step go this way: those whose queries are in `tiles.many`."""
        if window is not None or shape not in self._faster:
            return False
        return sum(count for count in plan.counts if count > tiles.few_queries) >= LONG

    def attended(
        self, q: Tensor, layer: KVLayer, plan: TritonPlan, tiles: Tiles, window: int | None, out: Tensor
    ) -> bool:
        """Write the long prompts' rows of `out`, if it takes them; others' get something that is to be overwritten."""
        shape = AttentionShape(q.shape[1], layer.keys.shape[1], q.shape[2], layer.keys.dtype, plan.block_size)
        taken = self.takes(shape, plan, tiles, window)
        if taken:
            self._run(self._faster[shape], shape, q, layer, plan, tiles.few_queries, out)
        return taken

    def _compared(self, shape: AttentionShape, layers: int, device: torch.device, ours: Ours) -> tuple[bool, str]:
        generator = torch.Generator(device).manual_seed(0)
        blocks = -(-LONG // shape.block_size)
        order = torch.randperm(blocks, generator=torch.Generator().manual_seed(0)).tolist()
        batch = AttentionBatch([LONG], [LONG], [order], torch.arange(LONG, device=device), shape.block_size)

        def drawn(rows: int, heads: int) -> Tensor:
            numbers = torch.randn(rows, heads, shape.head_dim, generator=generator, device=device)
            return numbers.to(shape.dtype)

        q, plan = drawn(LONG, shape.heads), TritonPlan.of(batch, device)
        layer = KVLayer(*(drawn(blocks * shape.block_size, shape.kv_heads) for _ in range(2)))
        expected, got = ours(q, layer, plan), torch.empty_like(q)
        wrapped = _Wrapped(self._wrapper(device))

        def theirs() -> None:
            self._run(wrapped, shape, q, layer, plan, 0, got)

        theirs()
        apart = float((got.float() - expected.float()).norm() / expected.float().norm())
        if not apart < 0.01:
            return False, f"what it gives is {apart:.1%} off"

        def planning() -> None:
            wrapped.planned = None
            theirs()

        one, with_plan, our = (self._seconds(call) for call in (theirs, planning, lambda: ours(q, layer, plan)))
        each = one + max(0.0, with_plan - one) / layers
        if each < our:
            self._faster[shape] = wrapped
        return each < our, f"{each * 1e6:.0f} µs a layer for {LONG} tokens, ours {our * 1e6:.0f}"

    def _wrapper(self, device: torch.device) -> Any:
        if self._workspace is None:
            self._workspace = torch.empty(_WORKSPACE, dtype=torch.uint8, device=device)
        # "NHD": a block has its tokens one after the other, each with all its heads, as ours have.
        return self._library.BatchPrefillWithPagedKVCacheWrapper(self._workspace, "NHD")

    def _run(
        self,
        wrapped: _Wrapped,
        shape: AttentionShape,
        q: Tensor,
        layer: KVLayer,
        plan: TritonPlan,
        few_queries: int,
        out: Tensor,
    ) -> None:
        if wrapped.planned is not plan:
            self._plan(wrapped.wrapper, shape, plan, few_queries, q.device)
            wrapped.planned = plan
        blocks = (-1, shape.block_size, shape.kv_heads, shape.head_dim)
        # Launches of ours begin before the one before has ended, and wait by themselves; these are not to.
        wrapped.wrapper.run(q, (layer.keys.view(blocks), layer.values.view(blocks)), out=out, enable_pdl=False)

    def _plan(
        self, wrapper: Any, shape: AttentionShape, plan: TritonPlan, few_queries: int, device: torch.device
    ) -> None:
        # Rows that are not ours to compute cannot be left out: they see no more keys than there are of them.
        seen = [
            context if count > few_queries else count for count, context in zip(plan.counts, plan.contexts, strict=True)
        ]
        size = shape.block_size
        used = [-(-keys // size) for keys in seen]
        blocks = [b for table, n in zip(plan.blocks, used, strict=True) for b in table[:n]]
        starts, firsts = ([*accumulate(counts, initial=0)] for counts in (plan.counts, used))
        wrapper.plan(
            torch.tensor(starts, dtype=torch.int32),
            torch.tensor(firsts, dtype=torch.int32),
            torch.tensor(blocks, dtype=torch.int32).to(device),
            torch.tensor([(keys - 1) % size + 1 for keys in seen], dtype=torch.int32),
            shape.heads,
            shape.kv_heads,
            shape.head_dim,
            size,
            causal=True,
            q_data_type=shape.dtype,
            kv_data_type=shape.dtype,
        )


def _seconds(call: Callable[[], object]) -> float:
    """Median over some rounds, after one that does not count."""
    taken = []
    for _ in range(1 + _ROUNDS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:])
