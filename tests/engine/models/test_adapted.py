"""Rows of one step have adapters of their own, and each gets what the merged checkpoint gives it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from adapter_files import stating, with_tensors, write_adapter
from packed_checkpoints import gptq_scheme, write_packed
from tiny_models import COMMON, EXPERTS, MakeCheckpoint
from torch import Tensor

from headgate.engine.assembling.largest_step import largest_step
from headgate.engine.engine import Engine
from headgate.engine.errors import CheckpointError
from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.interface import AttentionBatch, Kernels
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kv.store import KVStore
from headgate.engine.models.adapters.decoder import AdaptedDecoder
from headgate.engine.models.adapters.linear import AdapterRows, Stack
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.models.loader import load_decoder
from headgate.engine.models.resting import Parked, storages
from headgate.engine.scheduling.limits import Limits
from headgate.engine.settings import EngineSettings, ModelSpec

CPU = torch.device("cpu")
COUNTS = (5, 1, 7, 3)


def logits(decoder: LanguageModel, owners: Sequence[int] | None = None, counts: Sequence[int] = COUNTS) -> Tensor:
    """Of the last tokens of some prompts, a row each; `owners`: numbers of their adapters."""
    store = KVStore(decoder.spec, len(counts), 8, decoder.dtype, CPU)
    tables = [[number] for number in range(len(counts))]
    places = [(number * 8 + at, at) for number, count in enumerate(counts) for at in range(count)]
    slots, positions = (torch.tensor(each) for each in zip(*places, strict=True))
    rows = torch.tensor(counts).cumsum(0) - 1
    if owners is not None:
        assert isinstance(decoder, AdaptedDecoder)
        decoder.rows.place(owners, counts, rows.tolist())
        decoder = decoder.tuned
    batch = AttentionBatch(counts, counts, tables, slots, 8)
    with torch.inference_mode():
        return decoder.forward(torch.arange(3, 3 + sum(counts)), positions, batch, store.layers, rows)


def adapted(base: Path, folders: Mapping[str, Path], kernels: Kernels | None = None, **how: Any) -> AdaptedDecoder:
    loaded = load_decoder(base, kernels or ReferenceKernels(), adapters=folders, **{"dtype": "float32", **how})
    assert isinstance(loaded.decoder, AdaptedDecoder)
    assert [*loaded.decoder.adapters] == [*folders]
    return loaded.decoder


FUSED = ("self_attn.qkv_proj", "mlp.gate_up_proj")
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # Of q and v, of the gates only; of the keys, the ups and the outputs.
    "qwen3": (("q_proj", "v_proj", "gate_proj"), ("k_proj", "o_proj", "up_proj", "layers.2.mlp.down_proj")),
    "llama-biases-linear": (("v_proj",), ("q_proj", "k_proj", "down_proj")),
    "qwen3-moe": (("q_proj", "o_proj"), ("k_proj", "v_proj")),
    # One tensor of the checkpoint is what others have in parts.
    "phi3": (FUSED, ("o_proj", "down_proj")),
    # Whose heads are turned in another order than the checkpoint's.
    "glm4": (("q_proj", "k_proj", "gate_up_proj"), ("v_proj",)),
    # The residual stream is not of the checkpoint's scale.
    "granite": (("q_proj", "o_proj", "down_proj"), ("up_proj",)),
    # What is between the projections and the heads looks at all of them.
    "olmo2": (("q_proj", "k_proj"), ("o_proj",)),
}


@pytest.mark.parametrize("architecture", KINDS)
def test_rows_side_by_side_are_those_of_merged_checkpoints(
    architecture: str, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    base, (one, other) = make_checkpoint(architecture), KINDS[architecture]
    folders = {
        "one": write_adapter(base, tmp_path / "one", one, rank=4)[0],
        "other": write_adapter(base, tmp_path / "other", other, rank=7, seed=6, use_rslora=True)[0],
    }
    decoder = adapted(base, folders)
    merged = {n: load_decoder(base, ReferenceKernels(), dtype="float32", adapter=f).decoder for n, f in folders.items()}
    own = [logits(decoder), logits(merged["one"]), logits(merged["other"])]
    for owners in ((1, 2, 0, 1), (2, 2, 2, 2), (0, 0, 1, 0), (1, 1, 2, 2), (0, 0, 0, 0)):
        wanted = torch.stack([own[number][at] for at, number in enumerate(owners)])
        torch.testing.assert_close(logits(decoder, owners), wanted, rtol=0, atol=2e-5)
    assert all((one - other).abs().max() > 0.1 for one, other in ((own[0], own[1]), (own[0], own[2]), own[1:]))
    assert torch.equal(own[0], logits(load_decoder(base, ReferenceKernels(), dtype="float32").decoder))


def test_logits_are_those_of_peft(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    base = make_checkpoint("llama2")
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    ranks = {"rank_pattern": {"layers.1.self_attn.q_proj": 2}, "alpha_pattern": {"layers.0.mlp.up_proj": 32}}
    config = peft.LoraConfig(r=4, lora_alpha=10, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM", **ranks)
    tuned: Any = peft.get_peft_model(model, config)
    generator = torch.Generator().manual_seed(3)
    with torch.inference_mode():
        for name, parameter in tuned.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 5)
        tuned.save_pretrained(tmp_path)
        wanted = tuned.eval()(torch.arange(3, 11).unsqueeze(0)).logits[0, -1]
    ours = logits(adapted(base, {"a": tmp_path}), [1, 0], [8, 3])
    torch.testing.assert_close(ours[0], wanted, rtol=0, atol=5e-5)


DELTA: dict[str, Any] = {
    **{"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16},
    **{"linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "head_dim": 32},
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}
EYE = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64}


def test_all_linear_layers_of_the_delta_rule_have_factors(tmp_path: Path) -> None:
    """Where the files have what sees beside it, too: tuned was the class of the text model alone."""
    torch.manual_seed(0)
    config = transformers.Qwen3_5Config(text_config={**COMMON, **DELTA}, vision_config=EYE, tie_word_embeddings=True)
    transformers.Qwen3_5ForConditionalGeneration(config).save_pretrained(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    model.lm_head.weight = model.model.embed_tokens.weight  # whose tie is stated of the whole
    tuned: Any = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    torch.manual_seed(3)
    with torch.inference_mode():
        for name, parameter in tuned.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape) / 5)
        tuned.save_pretrained(tmp_path / "a")
        wanted = tuned.eval()(torch.arange(3, 11).unsqueeze(0)).logits[0, -1]
    decoder = adapted(tmp_path, {"a": tmp_path / "a"})
    merged = load_decoder(tmp_path, ReferenceKernels(), dtype="float32", adapter=tmp_path / "a").decoder
    torch.testing.assert_close(logits(decoder, [1, 0], [8, 3])[0], wanted, rtol=0, atol=5e-5)
    torch.testing.assert_close(logits(merged, None, [8])[0], wanted, rtol=0, atol=5e-5)


def test_projections_that_lie_head_by_head_have_factors(tmp_path: Path) -> None:
    torch.manual_seed(0)
    experts = {**EXPERTS, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
    config = transformers.Qwen3NextConfig(**COMMON, **DELTA, **experts)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    kinds = {"one": ("in_proj_ba", "q_proj"), "other": ("in_proj_qkvz", "in_proj_ba", "out_proj")}
    folders = {name: write_adapter(tmp_path, tmp_path / name, kind)[0] for name, kind in kinds.items()}
    decoder = adapted(tmp_path, folders)
    for number, folder in enumerate(folders.values(), 1):
        merged = load_decoder(tmp_path, ReferenceKernels(), dtype="float32", adapter=folder).decoder
        mixed = logits(decoder, (number, 0, 3 - number, number))
        for at in (0, 3):
            torch.testing.assert_close(mixed[at], logits(merged)[at], rtol=0, atol=2e-5)


@pytest.mark.parametrize("how", [{"fmt": "int8"}, {"fmt": "int4"}, {"dtype": "bfloat16"}, {}], ids=str)
def test_a_row_depends_on_nobody_beside_it(
    how: dict[str, Any], make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    """To the last bit with the compiled kernels, of whatever format the base is; rows without an adapter as ever."""
    native = choose_kernels("auto", CPU)
    if not native.native:
        pytest.skip(native.why)
    base = make_checkpoint("qwen3")
    folders = {"one": write_adapter(base, tmp_path / "one", rank=3)[0]}
    folders["other"] = write_adapter(base, tmp_path / "other", ("o_proj", "up_proj"), seed=6)[0]
    decoder = adapted(base, folders, native.kernels, **how)
    mixed = logits(decoder, (1, 2, 0, 1))
    close = {"rtol": 0, "atol": 1e-5} if how.get("dtype", "float32") == "float32" else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(mixed[2], logits(decoder)[2], **close)
    for number in (1, 2):
        alone = logits(decoder, [number] * 4)[number - 1]
        torch.testing.assert_close(mixed[number - 1], alone, **close)
    assert (mixed[0] - logits(decoder)[0]).abs().max() > 0.05


def test_quantized_checkpoints_have_adapters(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    packed, expanded = write_packed(make_checkpoint("llama2"), tmp_path, gptq_scheme(4, 16))
    folder, _ = write_adapter(expanded, tmp_path / "adapter")
    merged = load_decoder(packed, ReferenceKernels(), dtype="float32", adapter=folder).decoder
    decoder = adapted(packed, {"a": folder})
    torch.testing.assert_close(logits(decoder, (1, 0, 1, 1))[2:], logits(merged)[2:], rtol=0, atol=2e-5)


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_factors_are_added_by_numbers_on_the_device(rows: int) -> None:
    """Where few rows choose among many adapters their factors are gathered; else all are multiplied."""
    torch.manual_seed(rows)
    stack = Stack.of(torch.randn(21, 5, 16), torch.randn(21, 5, 24))
    stack.down[0].zero_()
    numbers = torch.randint(0, 21, (rows,))
    x, y, mapping = torch.randn(rows, 16), torch.randn(rows, 24), AdapterRows(20, CPU)
    wanted = torch.stack([y[at] + x[at] @ stack.down[n].t() @ stack.up[n] for at, n in enumerate(numbers)])
    with mapping.on_device(numbers):
        stack.add(y, x, mapping.every)
    torch.testing.assert_close(y, wanted)


def test_the_largest_step_and_sleep_know_of_adapters(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    base = make_checkpoint("qwen3")
    decoder = adapted(base, {"a": write_adapter(base, tmp_path / "a")[0]})
    assert largest_step(decoder, Limits(max_step_tokens=9, max_running=2), 4, torch.float32).shape == (2, 320)
    before = logits(decoder, (1, 0, 1, 0))
    kept, bare = (
        sum(storage.nbytes() for storage in storages(each))
        for each in (decoder, load_decoder(base, ReferenceKernels(), dtype="float32").decoder)
    )
    assert kept - bare > decoder.adapters["a"].nbytes > 4 * 3 * 4 * (4 * 64 + 3 * 64)
    parked = Parked(decoder)
    parked.leave()
    assert not storages(decoder)
    assert parked.back() is decoder
    assert torch.equal(logits(decoder, (1, 0, 1, 0)), before)


A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
MERGED = r"cannot be a row's of a batch: .* models\[\].adapter takes other matrices of a checkpoint, too"


def replaced(name: str, *tensors: tuple[str, Tensor]) -> Callable[[Path], None]:
    return with_tensors(lambda found: found.update({f"base_model.model.{name}.{end}": t for end, t in tensors}))


PAIR = ("lora_A.weight", torch.zeros(4, 64)), ("lora_B.weight", torch.zeros(320, 4))
LAYER = "model.layers.1"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (stating(use_dora=True), r"use_dora is True, which is not supported"),
        (with_tensors(lambda t: t.pop(A)), r"of 'model.layers.0.self_attn.q_proj.weight' there is only lora_B"),
        (with_tensors(lambda t: t.update({A: torch.full((4, 64), torch.inf)})), r"q_proj' there are factors that"),
        (replaced("lm_head", *PAIR), rf"for 'lm_head.weight', and for 0 more, that {MERGED}"),
        (replaced("lm_head", ("weight", torch.zeros(320, 64))), rf"for 'lm_head.weight', .* {MERGED}"),
        (replaced(f"{LAYER}.mlp.gate", *PAIR), rf"for '{LAYER}.mlp.gate.weight', .* {MERGED}"),
        (replaced(f"{LAYER}.mlp.experts.2.up_proj", *PAIR), rf"experts.2.up_proj.weight', .* {MERGED}"),
        (replaced(f"{LAYER}.mlp.experts.base_layer", *PAIR), rf"experts.base_layer.weight', .* {MERGED}"),
        (replaced(f"{LAYER}.self_attn.k_proj", ("weight", torch.zeros(128, 64))), rf"k_proj.weight', .* {MERGED}"),
        (replaced("model.embed_tokens", ("lora_embedding_A", torch.zeros(4, 320))), rf"embedding_A', .* {MERGED}"),
    ],
)
def test_what_rows_share_is_refused_by_name(
    spoil: Callable[[Path], None], why: str, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    base = make_checkpoint("qwen3-moe")
    sound, folder = (write_adapter(base, tmp_path / name, ("q_proj",))[0] for name in ("sound", "spoiled"))
    spoil(folder)
    with pytest.raises(CheckpointError, match=rf"the adapter 'spoiled': .*{why}"):
        load_decoder(base, ReferenceKernels(), adapters={"sound": sound, "spoiled": folder})


def test_what_transformers_computes_has_none(tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder, _ = write_adapter(tiny_checkpoint, tmp_path / "adapter")
    other = Path(shutil.copytree(tiny_checkpoint, tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "architectures": ["Gemma2ForCausalLM"]}))
    with pytest.raises(CheckpointError, match=r"'m': .*'Gemma2ForCausalLM' is not known; .* without an adapter"):
        Engine(EngineSettings(device="cpu")).load(ModelSpec("m", other, adapters={"a": folder}))
