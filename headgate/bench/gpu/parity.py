"""`headgate bench gpu`, end to end: greedy answers of the demo pair, token for token those of transformers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headgate.bench.engine.speed import all_answered, started
from headgate.bench.engine.workloads import Prompts, Workload
from headgate.bench.gpu.engine import recorded
from headgate.engine.demo import checkpoint
from headgate.engine.kernels.checks.line import Line
from headgate.engine.kernels.choice import KernelSet
from headgate.engine.request import Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec

_NEW = 48


def parity(kernels: KernelSet, device: str) -> Iterator[Line]:
    """The demo models in float32, where rounding decides next to nothing: all prompts at once, then transformers."""
    lengths = (1, 5, 17, 64, 130, 600)
    prompts = [prompt for prompt, _ in Prompts(4000).fill(Workload("parity", tuple((n, _NEW) for n in lengths)))]
    greedy = SamplingParams(temperature=0.0, max_tokens=_NEW, ignore_eos=True)
    for name in ("student", "teacher"):
        folder = checkpoint(name)
        theirs = transformers_tokens(folder, prompts, _NEW, device)
        for ahead, how in ((True, "a step ahead"), (False, "step by step")):
            ours = engine_tokens(folder, prompts, greedy, kernels, device, ahead=ahead)
            yield compared(f"{name}, greedy, {how}", ours, theirs, "transformers")
    drawn = replace(greedy, temperature=0.8, top_k=20, top_p=0.95, seed=1, frequency_penalty=0.4)
    first, second = (engine_tokens(folder, prompts, drawn, kernels, device, ahead=ahead) for ahead in (True, False))
    yield compared(f"{name}, drawn, a step ahead", first, second, "one step after the other")


def compared(name: str, ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]], whose: str) -> Line:
    """How far each answer is the same from its beginning."""
    same = [
        next((i for i, (a, b) in enumerate(zip(x, y, strict=True)) if a != b), len(x))
        for x, y in zip(ours, theirs, strict=True)
    ]
    whole = sum(count == len(x) for count, x in zip(same, ours, strict=True))
    text = f"{whole} of {len(ours)} answers the same as those of {whose}; same tokens of each: {same}"
    return Line(name, text, {"answers": len(ours), "same": whole}, whole == len(ours))


def engine_tokens(
    folder: Path,
    prompts: Sequence[tuple[int, ...]],
    sampling: SamplingParams,
    kernels: KernelSet,
    device: str,
    *,
    ahead: bool,
) -> list[list[int]]:
    """What the engine writes with all prompts in flight together, once steps are recorded that are to be."""
    settings = EngineSettings(
        device=device, kernels=kernels, prefix_cache=False, max_running=8, kv_bytes=1 << 28, decode_ahead=ahead
    )
    answers: dict[str, list[int]] = {str(i): [] for i in range(len(prompts))}
    with started(settings, ModelSpec("bench", folder, dtype="float32")) as engine:
        deque(recorded(engine))
        requests = [Request(str(i), "bench", prompt, sampling) for i, prompt in enumerate(prompts)]
        _, arrived = all_answered(engine, requests)
    errors = []
    for delta in (delta for _, deltas in arrived for delta in deltas):
        answers[delta.request_id].extend(delta.token_ids)
        if delta.finish is not None and delta.finish.reason != "length":
            errors.append(f"{delta.request_id}: {delta.finish.reason} {delta.finish.error}")
    if errors:
        raise RuntimeError("; ".join(errors))
    return [*answers.values()]


def transformers_tokens(folder: Path, prompts: Sequence[tuple[int, ...]], new: int, device: str) -> list[list[int]]:
    """What transformers writes, greedily, one prompt after the other."""
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device)
    # Of its own: as many tokens whatever they are, the likeliest each time, whatever the checkpoint recommends.
    model.generation_config = transformers.GenerationConfig(max_new_tokens=new, do_sample=False, pad_token_id=0)
    answers = []
    with torch.inference_mode():
        for prompt in prompts:
            given = torch.tensor([prompt], device=device)
            written = model.generate(given, attention_mask=torch.ones_like(given))
            answers.append(written[0, len(prompt) :].tolist())
    return answers
