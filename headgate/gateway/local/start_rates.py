"""How fast a model is before anybody has asked it: guessed by its size, and measured by steps of our own."""

from __future__ import annotations

from collections.abc import Callable

from headgate.engine.front.local import LocalModel
from headgate.engine.front.model_info import ModelInfo
from headgate.engine.sampling.params import SamplingParams
from headgate.routing.price import Rates, first_rates

_USUAL = {"cpu": (10e9, 200e9), "cuda": (1e12, 100e12)}
"""Bytes read and operations done in a second, before anything was measured."""
_STEPS = ((64, 1, 1), (2, 8, 1), (2, 8, 4), (64, 1, 1), (2, 8, 1))
"""What is measured at the start: prompt tokens, new tokens, choices."""


def start_rates(info: ModelInfo) -> Rates:
    """What steps may take, before any was measured: from the model's size and what such a device usually does."""
    read_bytes_s, flops = _USUAL["cuda" if info.device.startswith("cuda") else "cpu"]
    return first_rates(
        weight_bytes=info.weight_bytes_read(1),
        active_parameters=info.active_parameters,
        read_bytes_s=read_bytes_s,
        flops=flops,
    )


async def first_steps(model: LocalModel, seen: Callable[[], object]) -> None:
    """Have a model take some steps; `seen` is called after each kind. EngineError where it cannot."""
    info = model.info
    prompt = tuple(1 + at % (info.vocab_size - 1) for at in range(min(64, info.context_length // 2)))
    for tokens, new, choices in _STEPS:
        sampling = SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True)
        async for _ in model.generate("start", prompt[:tokens], sampling, n=choices, tenant="\0start"):
            pass
        seen()
