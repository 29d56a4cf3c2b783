"""The engine with Triton's kernels, in its interpreter: a step ahead, token for token what plain torch writes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from tiny_models import ARCHITECTURES, COMMON, write_tokenizer
from triton_cases import in_the_interpreter, triton_kernels

from headgate.engine import engine as engines
from headgate.engine.engine import Engine, EngineSettings, ModelSpec
from headgate.engine.kernels.choice import KernelChoice
from headgate.engine.request import Delta, Request
from headgate.engine.sampling.params import SamplingParams

pytestmark = in_the_interpreter

SETTINGS = EngineSettings(device="cpu", kernels="reference", max_running=3, block_size=4, kv_bytes=1 << 16)
GREEDY = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)
ASKED = [
    Request("greedy", "m", (5, 6, 7), GREEDY),
    Request("drawn", "m", tuple(range(40, 50)), replace(GREEDY, temperature=0.9, top_k=9, top_p=0.9, seed=3)),
    Request("penalised", "m", (9, 9), replace(GREEDY, frequency_penalty=1.0, logit_bias=((17, 2.0),), logprobs=0)),
]


def written(folder: Path, settings: EngineSettings) -> dict[str, list[int]]:
    engine, done = Engine(settings), threading.Semaphore(0)
    engine.load(ModelSpec("m", folder, dtype="float32"))
    tokens: dict[str, list[int]] = {request.id: [] for request in ASKED}

    def arrive(deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            tokens[delta.request_id].extend(delta.token_ids)
            if delta.finish is not None:
                assert delta.finish.error is None
                done.release()

    engine.start()
    try:
        for request in ASKED:
            engine.submit(request, arrive)
        for _ in ASKED:
            done.acquire()
    finally:
        engine.stop()
    return tokens


def test_tokens_are_those_of_plain_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A layer with an MLP, and one with experts.
    name, extra = ARCHITECTURES["qwen3-moe"]
    torch.manual_seed(0)
    config = getattr(transformers, name)(**{**COMMON, **extra, "num_hidden_layers": 2})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    expected = written(tmp_path, SETTINGS)

    def chosen(wanted: str, device: torch.device) -> KernelChoice:  # noqa: ARG001
        return KernelChoice(triton_kernels(), True, "in the interpreter")

    monkeypatch.setattr(engines, "choose_kernels", chosen)
    assert written(tmp_path, replace(SETTINGS, decode_ahead=True)) == expected
