"""`headgate bench gpu`, end to end: greedy answers of the demo pair, token for token those of transformers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from headgate.bench.gpu_check_stages import Line
from headgate.bench.workloads import Prompts, Workload
from headgate.engine.demo import checkpoint
from headgate.engine.engine import Engine, EngineSettings, ModelSpec
from headgate.engine.kernels.choice import KernelSet
from headgate.engine.request import Delta, Request
from headgate.engine.sampling.params import SamplingParams

_NEW = 48


def parity(kernels: KernelSet, device: str) -> Iterator[Line]:
    """The demo models in float32, where rounding decides next to nothing: all prompts at once, then transformers."""
    lengths = (1, 5, 17, 64, 130, 600)
    prompts = [prompt for prompt, _ in Prompts(4000).fill(Workload("parity", tuple((n, _NEW) for n in lengths)))]
    for name in ("student", "teacher"):
        folder = checkpoint(name)
        ours = engine_tokens(folder, prompts, _NEW, kernels, device)
        theirs = transformers_tokens(folder, prompts, _NEW, device)
        yield compared(f"{name}, greedy, float32", ours, theirs)


def compared(name: str, ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> Line:
    """How far each answer is the same from its beginning."""
    same = [
        next((i for i, (a, b) in enumerate(zip(x, y, strict=True)) if a != b), len(x))
        for x, y in zip(ours, theirs, strict=True)
    ]
    whole = sum(count == len(x) for count, x in zip(same, ours, strict=True))
    text = f"{whole} of {len(ours)} answers the same as those of transformers; same tokens of each: {same}"
    return Line(name, text, {"answers": len(ours), "same": whole}, whole == len(ours))


def engine_tokens(
    folder: Path, prompts: Sequence[tuple[int, ...]], new: int, kernels: KernelSet, device: str
) -> list[list[int]]:
    """What the engine writes, greedily, with all prompts in flight together."""
    engine = Engine(EngineSettings(device=device, kernels=kernels, prefix_cache=False, kv_bytes=1 << 28))
    engine.load(ModelSpec("parity", folder, dtype="float32"))
    answers: dict[str, list[int]] = {str(i): [] for i in range(len(prompts))}
    errors, left, done = list[str](), len(prompts), threading.Event()

    def arrive(deltas: Sequence[Delta]) -> None:
        nonlocal left
        for delta in deltas:
            answers[delta.request_id].extend(delta.token_ids)
            if delta.finish is not None:
                left -= 1
                if delta.finish.reason != "length":
                    errors.append(f"{delta.request_id}: {delta.finish.reason} {delta.finish.error}")
        if not left:
            done.set()

    engine.start()
    try:
        sampling = SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True)
        for i, prompt in enumerate(prompts):
            engine.submit(Request(str(i), "parity", prompt, sampling), arrive)
        done.wait()
    finally:
        engine.stop()
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
