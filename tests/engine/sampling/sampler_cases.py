"""What the tests of the sampler share: both ways to sample, rows, draws, and settings of every kind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.interface import Kernels
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.sampling.sampler import Sampler, SamplingRow

CPU = torch.device("cpu")
KERNELS = {choice.why: choice.kernels for choice in (choose_kernels(k, CPU) for k in ("reference", "auto"))}
both = pytest.mark.parametrize("kernels", KERNELS.values(), ids=list(KERNELS))

# On a grid, because float32 scores cannot tell apart what differs by less than their last bit.
logit_lists = st.lists(st.integers(-768, 768).map(lambda k: k / 64), min_size=2, max_size=24)

every_kind = [
    SamplingParams(temperature=0.0, logprobs=3),
    SamplingParams(seed=5),
    SamplingParams(seed=5, top_k=5, logprobs=0),
    SamplingParams(seed=5, top_k=100, top_p=0.9),
    SamplingParams(seed=9, top_p=0.7, presence_penalty=0.5),
    SamplingParams(seed=9, top_p=0.999, temperature=3.0),
    SamplingParams(min_p=0.1, logprobs=20),
    SamplingParams(temperature=0.0, repetition_penalty=1.3),
]


def row(params: SamplingParams, position: int = 0, choice: int = 0, noise: int = 1, **history: tuple[int, ...]):
    return SamplingRow(params, history.get("prompt", ()), history.get("output", ()), choice, position, noise)


def draw(kernels: Kernels, logits: np.ndarray, params: SamplingParams, draws: int) -> np.ndarray:
    """Tokens drawn at `draws` positions from one distribution: int64 [draws]."""
    sampler = Sampler(len(logits), CPU, kernels)
    batch = torch.from_numpy(logits).float().expand(draws, -1).contiguous()
    return np.array(sampler.sample(batch, [row(params, position) for position in range(draws)]).token_ids)
