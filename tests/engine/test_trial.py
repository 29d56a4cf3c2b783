"""Kernels that are tried before they serve: the interpreter stands for a GPU that nobody here has."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headgate.engine.assembling.trial import Shapes, proved, wrong_in
from headgate.engine.engine import Engine
from headgate.engine.kernels.checks.inputs import Sizes, rounded
from headgate.engine.kernels.choice import KernelChoice
from headgate.engine.kernels.interface import HeadNorms
from headgate.engine.kernels.mixture import Mixture, MixtureWeights, ReferenceMixture
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.models.architectures import read_spec
from headgate.engine.quant.linear import DenseLinear, Linear, WeightFormat
from headgate.engine.settings import EngineSettings, ModelSpec

CPU = torch.device("cpu")
SMALL = Shapes(
    Sizes(
        hidden=32, width=40, heads=4, kv_heads=2, head_dim=16, experts=0, expert_width=0, per_token=0, tokens=(1,),
        decoding=((0, 1), (17, 18)), prompts=((3, 20),), window=9,
    ),
    torch.float32,
)  # fmt: skip


@pytest.fixture
def interpreted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Processes that are started interpret Triton's kernels; where they keep what they compile."""
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    return tmp_path / "triton"


class Without(ReferenceKernels):
    """Has no fp8, as the interpreter, which rounds it wrongly."""

    fp8 = None
    fp8_cache = False


def untried() -> KernelChoice:
    return KernelChoice(Without(), True, "Triton", "a GPU of 8.9")


def test_what_was_run_before_is_not_tried() -> None:
    seen = KernelChoice(ReferenceKernels(), True, "Triton")
    assert proved(seen, CPU, [SMALL], limit_s=0.0) is seen


def test_what_is_right_serves_and_is_tried_once_for_each_shape(interpreted: Path) -> None:
    given = untried()
    taken = proved(given, CPU, [SMALL])
    assert (taken.why, taken.untried) == ("Triton; right when tried on a GPU of 8.9", "")
    assert taken.kernels is given.kernels
    assert len([*interpreted.glob("headgate-*")]) == 1
    assert proved(given, CPU, [SMALL], limit_s=0.0) == taken  # no process would be done so soon
    other = Shapes(Sizes(**{**asdict(SMALL.sizes), "hidden": 48}), torch.float32)
    late = proved(given, CPU, [other], limit_s=0.0)
    assert late.why == "plain torch; Triton's kernels, tried on a GPU of 8.9: not done after 0 s"
    assert (type(late.kernels), late.native) == (ReferenceKernels, False)


def test_a_process_that_breaks_is_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("import os\nos._exit(139)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    taken = proved(untried(), CPU, [SMALL])
    assert "the process that tried them ended with 139" in taken.why
    assert not taken.native


def test_the_process_imports_nothing_from_the_folder_it_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("import os\nos._exit(139)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert "ended with 139" not in proved(untried(), CPU, [SMALL]).why


def test_neither_the_name_of_tritons_distribution_nor_a_useless_folder_ends_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(name: str) -> object:
        raise PackageNotFoundError(name)  # as of pytorch-triton, of nightly builds

    monkeypatch.setattr("importlib.metadata.distribution", unknown)
    monkeypatch.setenv("TRITON_CACHE_DIR", "/" + "x" * 300)
    assert "not done after 0 s" in proved(untried(), CPU, [SMALL], limit_s=0.0).why


def test_the_process_ends_with_the_one_that_started_it() -> None:
    watched, held = os.pipe()
    command = [sys.executable, "-P", "-m", "headgate.engine.assembling.trial", str(watched)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(watched,)) as process:  # it waits for its task
        os.close(watched)
        os.close(held)
        assert process.wait(timeout=60) == 1


def test_where_no_process_can_be_started_plain_torch_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    taken = proved(untried(), CPU, [SMALL])
    assert "no process could be started" in taken.why
    assert not taken.native


def test_kernels_are_launched_on_the_device_they_are_tried_for(monkeypatch: pytest.MonkeyPatch) -> None:
    on: list[torch.device] = []

    @contextmanager
    def computing_on(device: torch.device) -> Iterator[None]:
        on.append(device)
        yield
        on.pop()

    class Looking(Without):
        def swiglu(self, gate_up: Tensor, into: object = None) -> Tensor:
            seen.append([*on])
            return super().swiglu(gate_up, into)

    seen: list[list[torch.device]] = []
    monkeypatch.setattr("headgate.engine.assembling.trial.computing_on", computing_on)
    wrong_in(Looking(), CPU, [SMALL])
    assert seen
    assert all(devices == [CPU] for devices in seen)


class Wrong(Without):
    """A gate that is off by a hundredth."""

    def swiglu(self, gate_up: Tensor, into: object = None) -> Tensor:
        return super().swiglu(gate_up, into) * 1.01


def test_the_first_that_is_wrong_is_named() -> None:
    assert wrong_in(Wrong(), CPU, [SMALL]).startswith("swiglu, 1 tokens, float32: error 1.0e-02, at most 1e-05")

    class Lost(Without):
        def plan(self, *_: object) -> object:
            raise RuntimeError("out of resource: shared memory")

    assert wrong_in(Lost(), CPU, [SMALL]) == "RuntimeError: out of resource: shared memory"


def test_shapes_are_those_of_the_model() -> None:
    config = {
        "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 48, "vocab_size": 151936,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144,
        "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True,
        "rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": 40960, "decoder_sparse_step": 1,
    }  # fmt: skip
    sizes = Shapes.of(read_spec(config), torch.bfloat16).sizes
    assert (sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim) == (2048, 32, 4, 128)
    assert (sizes.width, sizes.experts, sizes.expert_width, sizes.per_token) == (6144, 16, 768, 8)
    assert (sizes.head_norms, sizes.biases, sizes.shared_width, sizes.normalize) == (True, False, 0, True)
    large = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "num_hidden_layers": 80, "vocab_size": 128256,
        "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672, "rms_norm_eps": 1e-5,
        "rope_theta": 5e5, "max_position_embeddings": 8192,
    }  # fmt: skip
    sizes = Shapes.of(read_spec(large), torch.bfloat16).sizes
    assert (sizes.hidden, sizes.width, sizes.head_dim, sizes.head_norms) == (8192, 28672, 128, False)
    config |= {
        "architectures": ["Qwen2MoeForCausalLM"], "shared_expert_intermediate_size": 5632, "norm_topk_prob": False,
    }  # fmt: skip
    sizes = Shapes.of(read_spec(config), torch.bfloat16).sizes
    assert (sizes.head_norms, sizes.biases, sizes.shared_width, sizes.normalize) == (False, True, 5632, False)


def test_what_only_some_models_have_is_tried_for_them() -> None:
    seen: set[str] = set()

    class Some(Without):
        def rotate_and_write(self, q: Tensor, k: Tensor, v: Tensor, norms: HeadNorms | None, *rest: Any) -> Tensor:
            seen.add("no head norms" if norms is None else "head norms")
            return super().rotate_and_write(q, k, v, norms, *rest)

        def linear(self, weight: Tensor, bias: Tensor | None, fmt: WeightFormat, *_: object) -> Linear:
            seen.add("no biases" if bias is None else "biases")
            return DenseLinear(rounded(weight, fmt).to(weight.dtype), bias)

        def mixture(self, weights: MixtureWeights, fmt: WeightFormat) -> Mixture:
            seen.add("no shared expert" if weights.shared is None else "shared expert")
            return ReferenceMixture(weights, lambda weight: self.linear(weight, None, fmt))

    assert not wrong_in(Some(), CPU, [SMALL])
    assert seen == {"head norms", "no biases"}
    seen.clear()
    mixed = {"experts": 4, "expert_width": 24, "per_token": 2, "shared_width": 40, "normalize": False}
    other = replace(SMALL.sizes, head_norms=False, biases=True, **mixed)
    assert not wrong_in(Some(), CPU, [Shapes(other, torch.float32)])
    assert seen == {"no head norms", "no biases", "biases", "shared expert"}


def test_an_engine_tries_kernels_before_it_loads_models_for_them(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    found = KernelChoice(ReferenceKernels(), True, "Triton", "a GPU of 8.9")
    monkeypatch.setattr("headgate.engine.engine.choose_kernels", lambda *_: found)
    engine = Engine(EngineSettings(device="cpu", kv_bytes=1 << 20))
    with caplog.at_level(logging.INFO, logger="headgate.engine"):
        engine.load(ModelSpec("m", tiny_checkpoint))
    assert any("kernels: plain torch; Triton's kernels, tried on a GPU of 8.9" in text for text in caplog.messages)
    assert engine.kernels.startswith("plain torch; Triton's kernels, tried on a GPU of 8.9: RuntimeError: ")
    assert not [*(tmp_path / "triton").glob("headgate-*")], "what was wrong is tried again"
