"""Long prompts by FlashInfer, of which a stand-in has the signatures, the others by Triton in its interpreter."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from kernel_cases import CPU, Step, expected_attention, make_step
from torch import Tensor
from triton_cases import in_the_interpreter

from headgate.engine.kernels.interface import AttentionShape, KVLayer
from headgate.engine.kernels.reference import ReferenceKernels

pytestmark = in_the_interpreter

SHAPE = AttentionShape(4, 2, 16, torch.float32, 16)
STEP = [(30, 210), (40, 41), (0, 6), (99, 100)]
"""A long prompt behind a cached one, a short one, and tokens that are decoded beside them."""
LONG = 150
"""What is long here: the interpreter is slow."""


@pytest.fixture(autouse=True)
def shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    from headgate.engine.kernels.triton import flashinfer

    monkeypatch.setattr(flashinfer, "LONG", LONG)


class Wrapper:
    """As FlashInfer 0.6 documents BatchPrefillWithPagedKVCacheWrapper; computes in float64."""

    planned = 0
    adds = 0.0

    def __init__(self, workspace: Tensor, layout: str) -> None:
        assert workspace.dtype == torch.uint8
        assert layout == "NHD"

    def plan(
        self,
        rows: Tensor,
        pages: Tensor,
        indices: Tensor,
        last: Tensor,
        heads: int,
        kv_heads: int,
        dim: int,
        size: int,
        *,
        causal: bool,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:
        assert causal
        assert {t.dtype for t in (rows, pages, indices, last)} == {torch.int32}
        self._of = heads, kv_heads, dim, size, q_data_type, kv_data_type
        self._rows, self._pages, self._indices, self._last = (t.tolist() for t in (rows, pages, indices, last))
        Wrapper.planned += 1

    def run(self, q: Tensor, cache: tuple[Tensor, Tensor], *, out: Tensor, enable_pdl: bool) -> Tensor:
        heads, kv_heads, dim, size, *dtypes = self._of
        assert not enable_pdl
        assert dtypes == [q.dtype, cache[0].dtype]
        assert q.shape[1:] == (heads, dim)
        assert all(part.shape[1:] == (size, kv_heads, dim) for part in cache)
        for number, last in enumerate(self._last):
            blocks = self._indices[self._pages[number] : self._pages[number + 1]]
            seen = (len(blocks) - 1) * size + last
            keys, values = (
                part[blocks].flatten(0, 1)[:seen].double().repeat_interleave(heads // kv_heads, 1) for part in cache
            )
            mine = slice(self._rows[number], self._rows[number + 1])
            asked = q[mine].double()
            scores = torch.einsum("qhd,khd->hqk", asked, keys) * dim**-0.5
            scores += torch.full_like(scores[0], -torch.inf).triu(seen - len(asked) + 1)
            out[mine] = (torch.einsum("hqk,khd->qhd", scores.softmax(-1), values) + self.adds).to(out.dtype)
        return out


class FlashInfer:
    """The package."""

    BatchPrefillWithPagedKVCacheWrapper: Any = Wrapper


def plain(q: Tensor, layer: KVLayer, plan: Any) -> Tensor:
    """What ours gives, without the interpreter, which takes long for long prompts."""
    from headgate.engine.kernels.interface import AttentionBatch

    kernels = ReferenceKernels()
    batch = AttentionBatch(plan.counts, plan.contexts, plan.blocks, torch.zeros(0, dtype=torch.int64), plan.block_size)
    return kernels.paged_attention(q, layer, kernels.plan(batch, CPU), None)


def tried(wrapper: type[Wrapper] = Wrapper, seconds: tuple[float, ...] = (2.0, 5.0, 4.0), layers: int = 2) -> Any:
    """Tried with what its call, one that is planned too and ours are said to take."""
    from headgate.engine.kernels.triton.flashinfer import PromptAttention

    library, times = FlashInfer(), iter(seconds)
    library.BatchPrefillWithPagedKVCacheWrapper = wrapper
    prompts = PromptAttention(library, lambda call: (call(), next(times))[1])
    prompts.try_out(SHAPE, layers, CPU, plain)
    return prompts


def attended(step: Step, prompts: Any, window: int | None = None) -> tuple[Tensor, int]:
    """What a step gives, and how often it was planned for."""
    from headgate.engine.kernels.triton.attention import paged_attention
    from headgate.engine.kernels.triton.plan import TritonPlan

    plan, before = TritonPlan.of(step.batch, CPU), Wrapper.planned
    for _ in range(2):  # two layers
        got = paged_attention(step.q, step.layer, plan, window, prompts)
    return got, Wrapper.planned - before


def made(spans: list[tuple[int, int]], window: int | None = None) -> Step:
    return make_step(spans, torch.float32, kv_heads=2, group=2, dim=16, block_size=16, window=window)


def test_long_prompts_go_its_way_and_what_is_beside_them_ours() -> None:
    step = made(STEP)
    got, planned = attended(step, tried())
    torch.testing.assert_close(got.double(), expected_attention(step, None), rtol=1e-4, atol=1e-5)
    assert planned == 1


@pytest.mark.parametrize("spans", [[(30, 130), (0, 40)], [(240, 241)]], ids=["short prompts", "decoding"])
def test_other_steps_are_ours(spans: list[tuple[int, int]]) -> None:
    step = made(spans)
    got, planned = attended(step, tried())
    torch.testing.assert_close(got.double(), expected_attention(step, None), rtol=1e-4, atol=1e-5)
    assert planned == 0


class Wrong(Wrapper):
    """Gives something else."""

    adds = 0.5


class Broken(Wrapper):
    """Has no kernel for such heads."""

    def plan(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        raise ValueError("head_dim 16 is not supported")


@pytest.mark.parametrize(
    ("wrapper", "seconds", "layers", "why"),
    [
        (Wrapper, (2.0, 5.0, 4.0), 2, "used for long prompts: 3500000 µs a layer for 150 tokens, ours 4000000"),
        (Wrapper, (2.0, 7.0, 4.0), 2, "not used: 4500000 µs a layer"),
        (Wrapper, (2.0, 7.0, 4.0), 3, "used for long prompts: 3666667 µs a layer"),
        (Wrong, (2.0, 5.0, 4.0), 2, "not used: what it gives is"),
        (Broken, (2.0, 5.0, 4.0), 2, "not used: ValueError: head_dim 16 is not supported"),
    ],
    ids=["faster", "slower with its planning", "faster of more layers", "wrong", "broken"],
)
def test_it_is_used_where_it_is_right_and_faster(
    wrapper: type[Wrapper], seconds: tuple[float, ...], layers: int, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    prompts = tried(wrapper, seconds, layers)
    assert f"FlashInfer's attention is {why}" in caplog.text
    from headgate.engine.kernels.triton.plan import TritonPlan

    step = made(STEP)
    plan = TritonPlan.of(step.batch, CPU)
    assert prompts.takes(SHAPE, plan, plan.tiles(2, 128), None) == why.startswith("used")


def test_windows_and_other_shapes_are_ours() -> None:
    from headgate.engine.kernels.triton.plan import TritonPlan

    prompts, plan = tried(), TritonPlan.of(made(STEP).batch, CPU)
    tiles = plan.tiles(2, 128)
    assert prompts.takes(SHAPE, plan, tiles, None)
    assert not prompts.takes(SHAPE, plan, tiles, 100)
    assert not prompts.takes(AttentionShape(8, 2, 16, torch.float32, 16), plan, tiles, None)
