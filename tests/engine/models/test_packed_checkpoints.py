"""Checkpoints of packed integers give what transformers gives for the weights that they stand for."""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from packed_checkpoints import Scheme, awq_scheme, compressed_scheme, gptq_scheme, write_packed
from safetensors.torch import load_file, save_file
from tiny_models import MakeCheckpoint

from headgate.engine.errors import CheckpointError
from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kv.store import KVStore
from headgate.engine.models.loader import LoadedDecoder, load_decoder
from headgate.engine.models.loading import read_facts
from headgate.engine.models.weights.quantization import check_quantization
from headgate.engine.models.weights.quantized import expanded, read_matrix
from headgate.engine.models.weights.tensors import CheckpointTensors
from headgate.engine.quant.fp8 import Fp8Weight
from headgate.engine.quant.integers import IntegerWeight
from headgate.engine.quant.linear import WeightFormat, quantize_rows

CPU = torch.device("cpu")
TOKENS = torch.arange(3, 23)
BYTES = compressed_scheme(8, -1, packed=False)


def logits(loaded: LoadedDecoder) -> torch.Tensor:
    store = KVStore(loaded.decoder.spec, 3, 8, torch.float32, CPU)
    batch = AttentionBatch([20], [20], [[0, 1, 2]], torch.arange(20), 8)
    with torch.inference_mode():
        return loaded.decoder.forward(TOKENS, torch.arange(20), batch, store.layers, torch.arange(20))


def oracle(folder: Path) -> torch.Tensor:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.inference_mode():
        return model(TOKENS[None]).logits[0]


@pytest.mark.parametrize(
    ("architecture", "scheme", "shards"),
    [
        ("llama-biases-linear", gptq_scheme(4, 32), 1),
        ("qwen3-moe", gptq_scheme(4, 32), 3),
        ("qwen2", gptq_scheme(8, 16, version=2, symmetric=False, ordered=True), 1),
        ("mixtral", gptq_scheme(4, 32, symmetric=False, ordered=True), 1),
        ("mistral", gptq_scheme(8, -1, symmetric=False), 1),
        ("qwen2-moe", awq_scheme(16), 3),
        ("qwen3", awq_scheme(-1), 1),
        ("olmoe", compressed_scheme(4, 16, zeros="words", dtype=torch.float16), 1),
        ("llama3", compressed_scheme(4, 32), 3),
        ("qwen3-moe", compressed_scheme(8, -1, zeros="bytes"), 1),
        ("llama2", compressed_scheme(8, -1), 1),
        ("qwen2-moe", BYTES, 1),
        ("qwen2", compressed_scheme(8, -1, packed=False, zeros="bytes"), 1),
    ],
)
def test_logits_equal_transformers(
    architecture: str, scheme: Scheme, shards: int, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    packed, twin = write_packed(make_checkpoint(architecture), tmp_path, scheme, shards=shards)
    ours = load_decoder(packed, choose_kernels("auto", CPU).kernels)
    torch.testing.assert_close(logits(ours), oracle(twin), rtol=0, atol=1e-4)
    # Scales and zeros are no parameters.
    assert ours.parameters == read_facts(packed).parameters == read_facts(twin).parameters


@pytest.mark.parametrize("zero", [None, 3])
def test_one_scale_for_a_matrix(zero: int | None, make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    packed, twin = write_packed(make_checkpoint("llama2"), tmp_path, BYTES)
    tensors, values = (load_file(folder / "model.safetensors") for folder in (packed, twin))
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        tensors[f"{name}_scale"] = torch.tensor([0.01])
        values[name] = 0.01 * (tensors[name].float() - (zero or 0))
        if zero is not None:
            tensors[f"{name}_zero_point"] = torch.tensor([zero], dtype=torch.int8)
    save_file(tensors, packed / "model.safetensors")
    save_file(values, twin / "model.safetensors")
    ours, theirs = (load_decoder(folder, ReferenceKernels()) for folder in (packed, twin))
    torch.testing.assert_close(logits(ours), logits(theirs), rtol=0, atol=1e-5)


@pytest.mark.parametrize("scheme", [gptq_scheme(4, 32), BYTES], ids=["gptq", "bytes"])
def test_layers_left_as_they_are(scheme: Scheme, make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    packed, twin = write_packed(make_checkpoint("qwen3"), tmp_path, scheme, keep="layers.1.")
    ours, theirs = (load_decoder(folder, ReferenceKernels()) for folder in (packed, twin))
    torch.testing.assert_close(logits(ours), logits(theirs), rtol=0, atol=1e-5)


def test_packed_heads_routers_and_embeddings(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    also = ("lm_head", "mlp.gate", "shared_expert_gate", "embed_tokens")
    plain = make_checkpoint("qwen2-moe")
    packed, twin = write_packed(plain, tmp_path, compressed_scheme(8, 16, zeros="words"), also=also)
    ours, theirs = (load_decoder(folder, ReferenceKernels()) for folder in (packed, twin))
    torch.testing.assert_close(logits(ours), logits(theirs), rtol=0, atol=1e-5)


def test_integers_beside_floats_of_eight_bits(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    """As compressed-tensors' mixed-precision has them; scales of activations, keys and values are of no use here."""
    packed, twin = write_packed(make_checkpoint("qwen3-moe"), tmp_path, compressed_scheme(4, 32), keep="self_attn")
    tensors, values = (load_file(folder / "model.safetensors") for folder in (packed, twin))
    for name in [name for name in values if "self_attn" in name and name.endswith("_proj.weight")]:
        low = Fp8Weight.of(values[name], blocks=False)
        tensors |= {name: low.values, f"{name}_scale": low.scales, name.replace("weight", "input_scale"): torch.ones(1)}
        values[name] = low.expand(torch.float32)
    tensors["model.layers.0.self_attn.k_scale"] = torch.ones(1)
    save_file(tensors, packed / "model.safetensors")
    save_file(values, twin / "model.safetensors")
    ours, theirs = (load_decoder(folder, ReferenceKernels()) for folder in (packed, twin))
    torch.testing.assert_close(logits(ours), logits(theirs), rtol=0, atol=1e-5)
    assert ours.parameters == read_facts(packed).parameters == theirs.parameters


def test_biases_of_zeros_that_no_layer_has(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    """The first programs for GPTQ wrote them."""
    packed, twin = write_packed(make_checkpoint("llama2"), tmp_path, gptq_scheme(4, 32))
    path = packed / "model.safetensors"
    bias = {"model.layers.0.mlp.up_proj.bias": torch.zeros(96, dtype=torch.float16)}
    save_file(load_file(path) | bias, path)
    ours, theirs = (load_decoder(folder, ReferenceKernels()) for folder in (packed, twin))
    torch.testing.assert_close(logits(ours), logits(theirs), rtol=0, atol=1e-5)
    save_file(load_file(path) | {name: zeros + 1 for name, zeros in bias.items()}, path)
    with pytest.raises(CheckpointError, match=r"'model\.layers\.0\.mlp\.up_proj\.bias' and 0 more belong to no part"):
        load_decoder(packed, ReferenceKernels())


@pytest.mark.parametrize("fmt", ["int8", "int4"])
def test_another_format_rounds_what_they_stand_for(
    fmt: WeightFormat, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    packed, twin = write_packed(make_checkpoint("qwen3-moe"), tmp_path, gptq_scheme(4, 32))
    ours, theirs = (load_decoder(folder, ReferenceKernels(), fmt=fmt) for folder in (packed, twin))
    torch.testing.assert_close(logits(ours), logits(theirs), rtol=0, atol=1e-5)


def test_all_weights_are_named_and_expanded(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    for at, scheme in enumerate((gptq_scheme(8, 32), awq_scheme(32), compressed_scheme(4, 32), BYTES)):
        packed, twin = write_packed(make_checkpoint("mixtral"), tmp_path / str(at), scheme)
        found, wanted = expanded(packed, torch.float32), load_file(twin / "model.safetensors")
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_what_they_take_is_logged(
    make_checkpoint: MakeCheckpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    packed, _ = write_packed(make_checkpoint("qwen3"), tmp_path, awq_scheme(32))
    caplog.set_level(logging.INFO)
    load_decoder(packed, ReferenceKernels(), fmt="int4")
    assert "expanded" not in caplog.text
    load_decoder(packed, ReferenceKernels())
    assert "quantized weights take 1 MB, expanded to float32; weights: int8 or int4 takes less" in caplog.text


def test_whole_numbers_stay_where_the_largest_is_as_in_int8(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    """By bytes and outputs, int8 has the same numbers and, but for the last bit, the same scales."""
    packed, _ = write_packed(make_checkpoint("llama2"), tmp_path, BYTES)
    path = packed / "model.safetensors"
    tensors = load_file(path)
    for name, tensor in tensors.items():
        if tensor.dtype == torch.int8:
            tensor[:, 0] = 127
            tensors[name] = tensor.clamp(-127)
    save_file(tensors, path)
    source = CheckpointTensors(packed)
    source.packing = check_quantization(json.loads((packed / "config.json").read_text()))
    for at in ("self_attn.q_proj", "mlp.down_proj"):
        name = f"model.layers.1.{at}"
        shape = tensors[f"{name}.weight"].shape
        matrix = read_matrix(source, f"{name}.weight", (shape[0], shape[1]))
        assert isinstance(matrix, IntegerWeight)
        numbers, scales = quantize_rows(matrix.expand(torch.float32))
        assert torch.equal(numbers, tensors[f"{name}.weight"])
        torch.testing.assert_close(scales, tensors[f"{name}.weight_scale"].float(), rtol=2**-23, atol=0)


def stating(base: Scheme, **changes: Any) -> dict[str, Any]:
    return {**base.stated, **changes}


def group(**changes: Any) -> dict[str, Any]:
    stated = compressed_scheme(4, 32).stated
    weights = stated["config_groups"]["group_0"]["weights"] | changes
    return {**stated, "config_groups": {"group_0": {"weights": weights}}}


GPTQ, AWQ, COMPRESSED = gptq_scheme(4, 32), awq_scheme(32), compressed_scheme(4, 32)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "quantization_config 'bitsandbytes' is not supported"),
        ({"quant_method": "gguf"}, r"'gguf' is not supported; use quant_method 'gptq' or 'awq', .* or take the plain"),
        ("marlin", "quantization_config 'marlin' is not supported"),
        (stating(GPTQ, bits=3), "'gptq' of 3 bits is not supported; bits must be 4 or 8"),
        (stating(GPTQ, bits=None), "'gptq' of None bits"),
        (stating(GPTQ, dynamic={"+:.*down.*": {"bits": 2}, "-:lm_head": {}}), "'gptq' of 2 bits"),
        (stating(GPTQ, checkpoint_format="marlin"), "'gptq' in the layout 'marlin' is not supported; use 'gptq' or"),
        (stating(GPTQ, is_marlin_format=True), "'gptq' in the layout 'marlin'"),
        (stating(GPTQ, pack_dtype="int16"), "'gptq' with pack_dtype 'int16' is not supported; it must be 'int32'"),
        (stating(AWQ, version="GEMV"), "'awq' of version 'gemv' is not supported; use 'gemm'"),
        (stating(AWQ, bits=8), "'awq' of 8 bits is not supported; bits must be 4"),
        (stating(COMPRESSED, format="marlin-24"), "in the format 'marlin-24' is not supported; use 'pack-quantized', "),
        (stating(COMPRESSED, sparsity_config={"format": "sparse-24-bitmask"}), "a sparsity_config of 'sparse-24-bitm"),
        (stating(COMPRESSED, transform_config={"config_groups": {}}), "with a transform_config is not supported"),
        (stating(COMPRESSED, config_groups=[1]), "config_groups must be an object of objects"),
        (group(num_bits=2), "with 2-bit int weights is not supported; use quant_method"),
        (group(type="float"), "with 4-bit float weights is not supported"),
        (group(strategy="block"), "with integers by 'block' is not supported; use 'tensor', 'channel', 'group'"),
    ],
)
def test_what_cannot_be_read_is_refused_by_config_alone(stated: object, message: str) -> None:
    with pytest.raises(CheckpointError, match=rf"^config\.json: .*{message}"):
        check_quantization({"quantization_config": stated})


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["gptq", "int", "group", "pack-quantized", "gemm"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "weights", "bits"]), inner),
    max_leaves=4,
)
KEYS = sorted({*GPTQ.stated, *AWQ.stated, *COMPRESSED.stated, "dynamic", "pack_dtype", "sparsity_config"})


@given(st.sampled_from([GPTQ, AWQ, COMPRESSED]), st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=3))
def test_whatever_a_configuration_says_it_is_taken_or_refused(base: Scheme, changes: dict[str, Any]) -> None:
    with contextlib.suppress(CheckpointError):
        check_quantization({"quantization_config": {**base.stated, **changes}})


AT = "model.layers.1.mlp.down_proj"
Tensors = dict[str, torch.Tensor]


def lacking(part: str) -> Callable[[Tensors], None]:
    def damage(tensors: Tensors) -> None:
        del tensors[f"{AT}.{part}"]

    return damage


def having(part: str, tensor: torch.Tensor) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({f"{AT}.{part}": tensor})


@pytest.mark.parametrize(
    ("scheme", "damage", "message"),
    [
        (GPTQ, lacking("qweight"), r"tensor 'MODULE\.weight' is missing from model\.safetensors"),
        (GPTQ, lacking("scales"), r"packed weight 'MODULE\.weight' lacks the tensor 'MODULE\.scales'"),
        (GPTQ, lacking("qzeros"), r"tensor 'MODULE\.qzeros' is missing"),
        (
            gptq_scheme(4, 32, ordered=True),
            lacking("g_idx"),
            r"has no g_idx, and config\.json says that its groups are",
        ),
        (
            GPTQ,
            having("qweight", torch.zeros(11, 64, dtype=torch.int32)),
            r"has a qweight of \(11, 64\); codes of 4 bits",
        ),
        (GPTQ, having("qweight", torch.zeros(12, 64)), r"'MODULE\.qweight' has dtype torch\.float32, torch\.int32 is"),
        (
            GPTQ,
            having("scales", torch.zeros(3, 64, dtype=torch.int32)),
            r"'MODULE\.scales' has dtype torch\.int32, float",
        ),
        (GPTQ, having("scales", torch.zeros(3, 63)), r"has scales of \(3, 63\); they must be groups × 64"),
        (GPTQ, having("scales", torch.tensor(1.0)), r"has scales of \(\); they must be groups × 64"),
        (GPTQ, having("scales", torch.full((3, 64), math.nan)), r"'MODULE\.weight': a scale is no finite number"),
        (
            GPTQ,
            having("g_idx", torch.full((96,), 3, dtype=torch.int32)),
            r"g_idx names the group 3; there are those from",
        ),
        (GPTQ, having("g_idx", torch.zeros(95, dtype=torch.int32)), r"'MODULE\.g_idx' has shape \(95,\)"),
        (
            AWQ,
            having("scales", torch.zeros(5, 64)),
            r"'MODULE\.qzeros' has shape \(3, 8\), config\.json means \(5, 8\)",
        ),
        (AWQ, having("qzeros", torch.zeros(2, 8, dtype=torch.int32)), r"'MODULE\.qzeros' has shape \(2, 8\)"),
        (
            compressed_scheme(4, 32, zeros="words"),
            lacking("weight_zero_point"),
            r"lacks the tensor 'MODULE\.weight_zero_point', and config\.json says that it is not symmetric",
        ),
        (COMPRESSED, lacking("weight_scale"), r"lacks the tensor 'MODULE\.weight_scale'"),
        (
            COMPRESSED,
            having("weight_scale", torch.zeros(63, 3)),
            r"has a weight_scale of \(63, 3\); it must be one, 64 or",
        ),
        (
            COMPRESSED,
            having("weight_shape", torch.tensor([64, 95])),
            r"weight_shape that says \(64, 95\), config\.json",
        ),
        (
            COMPRESSED,
            having("weight_shape", torch.tensor([64])),
            r"'MODULE\.weight_shape' has shape \(1,\), config\.json means \(2,\)",
        ),
        (
            BYTES,
            having("weight_zero_point", torch.zeros(64, 2, dtype=torch.int8)),
            r"has a weight_zero_point of \(64, 2\)",
        ),
        (
            BYTES,
            having("weight_zero_point", torch.zeros(1, dtype=torch.int8)),
            r"has a weight_zero_point of \(1,\); it must be 64 × 1",
        ),
        (BYTES, having("weight", torch.zeros(64, 96, dtype=torch.uint8)), r"has dtype torch\.uint8, floating point is"),
    ],
)
def test_damage_is_named(
    scheme: Scheme,
    damage: Callable[[Tensors], None],
    message: str,
    make_checkpoint: MakeCheckpoint,
    tmp_path: Path,
) -> None:
    packed, _ = write_packed(make_checkpoint("qwen3"), tmp_path, scheme)
    tensors = load_file(packed / "model.safetensors")
    damage(tensors)
    save_file(tensors, packed / "model.safetensors")
    with pytest.raises(CheckpointError, match=message.replace("MODULE", AT.replace(".", r"\."))):
        load_decoder(packed, ReferenceKernels())


@pytest.mark.parametrize(
    ("scheme", "stated", "message"),
    [
        (GPTQ, None, r"'.*qweight' takes a quantization_config with quant_method 'gptq' or 'awq'; config\.json has no"),
        (GPTQ, COMPRESSED.stated, r"'gptq' or 'awq'; config\.json has the quant_method 'compressed-tensors'"),
        (GPTQ, AWQ.stated, r"q_proj\.qweight' has shape \(8, 128\), config\.json means \(64, 16\)"),
        (AWQ, GPTQ.stated, r"has a qweight of \(64, 16\); codes of 4 bits take \(8, 128\), of 8 bits \(16, 128\)"),
        (
            BYTES,
            {"quant_method": "fp8"},
            r"q_proj\.weight' takes .* 'compressed-tensors'; config\.json has the quant_me",
        ),
    ],
)
def test_another_format_than_the_configuration_says(
    scheme: Scheme, stated: dict[str, Any] | None, message: str, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    packed, _ = write_packed(make_checkpoint("qwen3"), tmp_path, scheme)
    config = json.loads((packed / "config.json").read_text())
    (packed / "config.json").write_text(json.dumps(config | {"quantization_config": stated}))
    with pytest.raises(CheckpointError, match=message):
        load_decoder(packed, ReferenceKernels())
