"""The engine with Triton's kernels, in its interpreter: a step ahead, token for token what plain torch writes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from adapter_files import write_adapter
from tiny_models import ARCHITECTURES, COMMON, write_tokenizer
from triton_cases import in_the_interpreter, triton_kernels

from headgate.engine import engine as engines
from headgate.engine.engine import Engine
from headgate.engine.kernels.choice import KernelChoice
from headgate.engine.request import Delta, Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec

pytestmark = in_the_interpreter

SETTINGS = EngineSettings(device="cpu", kernels="reference", max_running=3, block_size=4, kv_bytes=1 << 16)
GREEDY = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)
ASKED = [
    Request("greedy", "m", (5, 6, 7), GREEDY),
    Request("drawn", "m", tuple(range(40, 50)), replace(GREEDY, temperature=0.9, top_k=9, top_p=0.9, seed=3)),
    Request("penalised", "m", (9, 9), replace(GREEDY, frequency_penalty=1.0, logit_bias=((17, 2.0),), logprobs=0)),
]


def written(
    folder: Path, settings: EngineSettings, asked: Sequence[Request], adapters: dict[str, Path]
) -> dict[str, list[int]]:
    engine, done = Engine(settings), threading.Semaphore(0)
    engine.load(ModelSpec("m", folder, dtype="float32", adapters=adapters))
    tokens: dict[str, list[int]] = {request.id: [] for request in asked}

    def arrive(deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            tokens[delta.request_id].extend(delta.token_ids)
            if delta.finish is not None:
                assert delta.finish.error is None
                done.release()

    engine.start()
    try:
        for request in asked:
            engine.submit(request, arrive)
        for _ in asked:
            done.acquire()
    finally:
        engine.stop()
    return tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a layer that has an MLP, and one that has experts."""
    folder, (name, extra) = tmp_path_factory.mktemp("model"), ARCHITECTURES["qwen3-moe"]
    torch.manual_seed(0)
    config = getattr(transformers, name)(**{**COMMON, **extra, "num_hidden_layers": 2})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def chosen(wanted: str, device: torch.device) -> KernelChoice:  # noqa: ARG001
    return KernelChoice(triton_kernels(), True, "in the interpreter")


def test_tokens_are_those_of_plain_torch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = written(folder, SETTINGS, ASKED, {})
    monkeypatch.setattr(engines, "choose_kernels", chosen)
    assert written(folder, replace(SETTINGS, decode_ahead=True), ASKED, {}) == expected


def test_tokens_of_rows_with_adapters_are_those_of_plain_torch(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stays fused where no adapter has a part, and what comes apart where one has."""
    adapters = {
        "a": write_adapter(folder, tmp_path / "a", ("0.self_attn.q_proj", "0.mlp.gate_proj"))[0],
        "b": write_adapter(folder, tmp_path / "b", ("1.self_attn.o_proj", "v_proj"), rank=3, seed=6)[0],
    }
    two = replace(GREEDY, max_tokens=2)
    asked = [Request(name, name, (5, 6, 7), two) for name in ("a", "b", "m")]
    expected = written(folder, SETTINGS, asked, adapters)
    assert len(set(map(tuple, expected.values()))) == 3
    monkeypatch.setattr(engines, "choose_kernels", chosen)
    assert written(folder, replace(SETTINGS, decode_ahead=True), asked, adapters) == expected
