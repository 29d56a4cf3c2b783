"""`headgate bench gpu`, the floor of its timings: transformers' continuous batching on the same machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from headgate.bench.engine.workloads import Prompts, Workload
from headgate.engine.kernels.checks.line import Line


def floor_speed(folder: Path, device: str, work: Sequence[Workload], config: Any = None) -> Iterator[Line]:
    """A line per workload: one round of the first to warm up, and one of each that counts.

    `config`: a transformers.ContinuousBatchingConfig; None: as transformers thinks best of the device.
    """
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device)
    # As many tokens whatever they are, the likeliest each time.
    greedy = transformers.GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
    prompts = Prompts(min(model.config.vocab_size, 3000))
    running = model.continuous_batching_context_manager(generation_config=greedy, continuous_batching_config=config)
    with torch.no_grad(), running as manager:
        _seconds(manager, prompts, work[0])
        for workload in work:
            tokens_s = workload.new_tokens / _seconds(manager, prompts, workload)
            yield Line(workload.name, f"{tokens_s:,.0f} tokens/s", {"tokens_s": tokens_s})


def _seconds(manager: Any, prompts: Prompts, workload: Workload) -> float:
    """Of one round, all requests at once."""
    requests, began = list(prompts.fill(workload)), time.perf_counter()
    for prompt, new in requests:
        manager.add_request(list(prompt), max_new_tokens=new)
    left = len(requests)
    while left:
        result = manager.get_result(timeout=1)
        if result is None and not manager.is_running():
            raise RuntimeError("transformers' continuous batching ended before its requests")
        if result is not None and result.error is not None:
            raise RuntimeError(result.error)
        left -= result is not None and result.is_finished()
    return time.perf_counter() - began
