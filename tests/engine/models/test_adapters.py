"""A LoRA adapter makes of a checkpoint what merging it into the checkpoint's matrices makes of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from adapter_files import ALPHA, RANK, stating, with_tensors, write_adapter
from packed_checkpoints import gptq_scheme, write_packed
from safetensors.torch import load_file, save_file
from tiny_models import MakeCheckpoint
from torch import Tensor

from headgate.engine.engine import Engine
from headgate.engine.errors import CheckpointError
from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kv.store import KVStore
from headgate.engine.models.loader import LoadedDecoder, load_decoder
from headgate.engine.settings import EngineSettings, ModelSpec

CPU = torch.device("cpu")


def merged_twin(base: Path, folder: Path, merged: dict[str, Tensor]) -> Path:
    shutil.copytree(base, folder, ignore=shutil.ignore_patterns(".headgate"))
    weights = {**load_file(base / "model.safetensors"), **merged}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def logits(loaded: LoadedDecoder) -> Tensor:
    decoder, tokens = loaded.decoder, torch.arange(3, 23)
    store = KVStore(decoder.spec, 3, 8, decoder.dtype, CPU)
    batch = AttentionBatch([20], [20], [[0, 1, 2]], torch.arange(20), 8)
    with torch.inference_mode():
        return decoder.forward(tokens, torch.arange(20), batch, store.layers, torch.arange(20))


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("qwen3", {}),
        ("qwen3", {"use_rslora": True, "alpha_pattern": {"v_proj": 3}}),
        ("llama2", {"targets": ("q_proj", "lm_head"), "whole": ("model.embed_tokens",)}),
        ("qwen3-moe", {"targets": ("gate", "experts.2.up_proj", "o_proj")}),
    ],
)
def test_logits_are_those_of_the_merged_checkpoint(
    architecture: str, options: dict[str, Any], make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    base = make_checkpoint(architecture)
    adapter, merged = write_adapter(base, tmp_path / "adapter", **options)
    assert merged
    plain = load_decoder(base, ReferenceKernels(), dtype="float32")
    ours = load_decoder(base, ReferenceKernels(), dtype="float32", adapter=adapter)
    theirs = load_decoder(merged_twin(base, tmp_path / "twin", merged), ReferenceKernels(), dtype="float32")
    torch.testing.assert_close(logits(ours), logits(theirs), rtol=0, atol=1e-5)
    assert (logits(ours) - logits(plain)).abs().max() > 0.1
    assert ours.parameters == plain.parameters
    assert ours.revision != plain.revision


@pytest.mark.parametrize(
    ("architecture", "called"),
    [("gemma3-seeing", "model.language_model"), ("mistral3", "model.language_model"), ("gemma3-seeing", "model")],
    ids=["gemma", "mistral", "the text model alone"],
)
def test_names_of_other_versions_of_transformers_are_those_of_the_files(
    architecture: str, called: str, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    """The modules that were trained are not called as the files' tensors are; what sees was trained, too."""
    base, adapter = make_checkpoint(architecture), tmp_path / "adapter"
    _, merged = write_adapter(base, adapter, ("q_proj", "up_proj"))
    merged = {name: tensor for name, tensor in merged.items() if name.startswith("language_model.model.")}
    with_tensors(
        lambda tensors: [
            tensors.update({name.replace(".language_model.model.", f".{called}."): tensors.pop(name)})
            for name in list(tensors)
            if ".language_model.model." in name
        ]
    )(adapter)
    pattern = {f"{called}.layers.1.self_attn.q_proj": ALPHA, "layers.1.self_attn.q_proj": 999}
    stating(alpha_pattern=pattern)(adapter)
    ours = load_decoder(base, ReferenceKernels(), dtype="float32", adapter=adapter)
    theirs = load_decoder(merged_twin(base, tmp_path / "twin", merged), ReferenceKernels(), dtype="float32")
    torch.testing.assert_close(logits(ours), logits(theirs), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("qwen3", {"target_modules": ["q_proj", "v_proj", "gate_proj"]}),
        ("llama2", {"target_modules": "all-linear", "use_rslora": True}),
        (
            "llama2",
            {
                "target_modules": ["q_proj"],
                "modules_to_save": ["lm_head"],
                "rank_pattern": {"layers.1.self_attn.q_proj": 2},
                "alpha_pattern": {"layers.0.self_attn.q_proj": 32},
            },
        ),
    ],
)
def test_logits_are_those_of_peft(
    architecture: str, options: dict[str, Any], make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    base = make_checkpoint(architecture)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    tuned: Any = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=10, task_type="CAUSAL_LM", **options))
    generator = torch.Generator().manual_seed(3)
    with torch.inference_mode():
        for name, parameter in tuned.named_parameters():
            if "lora_B" in name or "modules_to_save" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 5)
        tuned.save_pretrained(tmp_path)
        wanted = tuned.eval()(torch.arange(3, 23).unsqueeze(0)).logits[0]
    ours = logits(load_decoder(base, ReferenceKernels(), dtype="float32", adapter=tmp_path))
    torch.testing.assert_close(ours, wanted, rtol=0, atol=5e-5)
    assert (ours - logits(load_decoder(base, ReferenceKernels(), dtype="float32"))).abs().max() > 0.1


def test_quantized_checkpoints_can_be_adapted(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    packed, expanded = write_packed(make_checkpoint("llama2"), tmp_path, gptq_scheme(4, 16))
    adapter, merged = write_adapter(expanded, tmp_path / "adapter")
    ours = load_decoder(packed, ReferenceKernels(), dtype="float32", adapter=adapter)
    theirs = load_decoder(merged_twin(expanded, tmp_path / "merged", merged), ReferenceKernels(), dtype="float32")
    torch.testing.assert_close(logits(ours), logits(theirs), rtol=0, atol=1e-5)


def test_each_adapter_has_quantized_weights_of_its_own_on_disk(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    kernels = choose_kernels("auto", CPU).kernels
    base = merged_twin(make_checkpoint("qwen3"), tmp_path / "base", {})
    adapter, _ = write_adapter(base, tmp_path / "one")
    other, _ = write_adapter(base, tmp_path / "other", ("o_proj",))

    def loaded(adapter: Path | None) -> Tensor:
        return logits(load_decoder(base, kernels, fmt="int8", keep_packed=True, adapter=adapter))

    first = {name: loaded(name) for name in (None, adapter, other)}
    files = {path: path.stat().st_mtime_ns for path in (base / ".headgate").glob("*")}
    if not files:
        pytest.skip("these kernels keep nothing")
    assert len(files) == 3
    for name, found in first.items():
        assert torch.equal(loaded(name), found)
    assert {path: path.stat().st_mtime_ns for path in (base / ".headgate").glob("*")} == files
    # Another scale makes others of the same tensors.
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 1}))
    assert not torch.equal(loaded(adapter), first[adapter])


def test_a_checkpoint_is_served_with_its_adapter_and_without(tiny_checkpoint: Path, tmp_path: Path) -> None:
    adapter, _ = write_adapter(tiny_checkpoint, tmp_path / "adapter")
    engine = Engine(EngineSettings(device="cpu"))
    engine.load(ModelSpec("bare", tiny_checkpoint), ModelSpec("tuned", tiny_checkpoint, adapter=adapter))
    bare, tuned = (engine.models[name].info for name in ("bare", "tuned"))
    assert (bare.parameters, bare.text_revision) == (tuned.parameters, tuned.text_revision)
    assert bare.revision != tuned.revision, "or answers of one would be stored as the other's"


def test_what_transformers_computes_takes_no_adapter(tiny_checkpoint: Path, tmp_path: Path) -> None:
    adapter, _ = write_adapter(tiny_checkpoint, tmp_path / "adapter")
    other = Path(shutil.copytree(tiny_checkpoint, tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "architectures": ["Gemma2ForCausalLM"]}))
    with pytest.raises(CheckpointError, match=r"'m': .*'Gemma2ForCausalLM' is not known; .* without an adapter"):
        Engine(EngineSettings(device="cpu")).load(ModelSpec("m", other, adapter=adapter))


A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda f: (f / "adapter_config.json").unlink(), r"adapter_config\.json: the file is missing; an adapter is"),
        (lambda f: (f / "adapter_model.safetensors").unlink(), r"adapter_model\.safetensors: the file is missing"),
        (lambda f: (f / "adapter_model.safetensors").write_text("{"), r"not a readable safetensors file"),
        (stating(peft_type="IA3"), r"peft_type is 'IA3'; it must be 'LORA'"),
        (stating(use_dora=True), r"use_dora is True, which is not supported"),
        (stating(bias="all"), r"bias is 'all', which is not supported"),
        (stating(fan_in_fan_out=True), r"fan_in_fan_out is True"),
        (stating(init_lora_weights="pissa"), r"init_lora_weights is 'pissa', which changes the checkpoint itself"),
        (stating(lora_alpha=None), r"adapter_config.json: lora_alpha must be a positive number, got None"),
        (stating(alpha_pattern={"(": 1}), r"alpha_pattern has '\(', which is no regular expression"),
        (with_tensors(lambda t: t.pop(A)), r"of 'model.layers.0.self_attn.q_proj.weight' there is only lora_B"),
        (with_tensors(lambda t: t.clear()), r"it has no tensors, so it adapts nothing"),
        (with_tensors(lambda t: t.update({A: torch.zeros(0, 64)})), r"lora_A.weight' is \(0, 64\); \(rank, 64\) is"),
        (with_tensors(lambda t: t.update({A: torch.tensor(1.0)})), r"lora_A.weight' is \(\); \(rank, 64\) is needed"),
        (
            with_tensors(lambda t: t.update({A.replace("lora_A.", ""): torch.zeros(128, 64)})),
            r"of 'model.layers.0.self_attn.q_proj.weight' there are both",
        ),
        (
            with_tensors(lambda t: t.update({A: torch.zeros(RANK, 5)})),
            r"q_proj.lora_A.weight' is .*\(4, 64\) is needed",
        ),
        (
            with_tensors(lambda t: t.update({"base_model.model.model.vision.weight": torch.zeros(2, 2)})),
            r"the checkpoint has no 'model.vision.weight' that could be adapted, nor 0 more",
        ),
        (
            with_tensors(lambda t: t.update({"base_model.model.model.embed_tokens.weight": torch.zeros(320, 64)})),
            r"the head of the checkpoint is its embedding, of which only one was trained",
        ),
    ],
)
def test_what_cannot_be_applied_is_refused(
    spoil: Callable[[Path], None], why: str, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    base = make_checkpoint("qwen3")
    adapter, _ = write_adapter(base, tmp_path / "adapter")
    spoil(adapter)
    with pytest.raises(CheckpointError, match=why):
        load_decoder(base, ReferenceKernels(), adapter=adapter)
