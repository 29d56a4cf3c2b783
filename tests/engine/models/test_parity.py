"""The decoder against transformers, on random checkpoints of every known architecture, in float32."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import get_args

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import ARCHITECTURES, SEEING, MakeCheckpoint
from torch import Tensor

from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.cpu.kernels import CpuKernels, native_status
from headgate.engine.kernels.interface import AttentionBatch, Kernels
from headgate.engine.kv.store import KVStore
from headgate.engine.models.architectures import known, read_spec
from headgate.engine.models.decoder import Decoder, DecoderWeights
from headgate.engine.models.loader import load_decoder
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.quant.linear import WeightFormat

BLOCK_SIZE = 8
PROMPT, STEPS = 70, 32
CPU = torch.device("cpu")
BEFORE = {name for name in ARCHITECTURES if name.startswith(("llama", "mistral", "qwen", "mixtral", "olmoe"))}


class OneByOne(CpuKernels):
    """The same operators, without the step."""

    def whole_step(self, spec: DecoderSpec, weights: DecoderWeights) -> None:  # noqa: ARG002
        return None


@pytest.fixture(params=["reference", "native"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    if request.param == "reference":
        return choose_kernels("reference", CPU).kernels
    if not native_status().usable:
        pytest.skip(f"native kernels: {native_status().why}")
    return choose_kernels("auto", CPU).kernels


def step(decoder: Decoder, store: KVStore, table: list[int], tokens: list[int], start: int) -> Tensor:
    """Logits of every token of one chunk that starts at position `start`."""
    span = range(start, start + len(tokens))
    batch = AttentionBatch(
        counts=[len(tokens)],
        contexts=[span.stop],
        tables=[table],
        slots=torch.tensor([table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in span]),
        block_size=BLOCK_SIZE,
    )
    with torch.inference_mode():
        return decoder.forward(torch.tensor(tokens), torch.tensor(span), batch, store.layers, torch.arange(len(tokens)))


def oracle_logits(folder: Path, tokens: list[int]) -> Tensor:
    architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
    model = getattr(transformers, architecture).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0]


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, *SEEING])
def test_logits_equal_transformers(architecture: str, kernels: Kernels, make_checkpoint: MakeCheckpoint) -> None:
    folder = make_checkpoint(architecture)
    decoder = load_decoder(folder, kernels).decoder
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 320, (PROMPT + STEPS,), generator=generator).tolist()
    expected = oracle_logits(folder, tokens)
    # Blocks out of order, so that a wrong table shows.
    table = [13, 2, 9, 0, 7, 11, 4, 1, 3, 12, 5, 10, 6, 8]
    store = KVStore(decoder.spec, len(table), BLOCK_SIZE, torch.float32, torch.device("cpu"))
    prompt = step(decoder, store, table, tokens[:PROMPT], 0)
    torch.testing.assert_close(prompt, expected[:PROMPT], atol=1e-4, rtol=0)
    decode_error = 0.0
    for position in range(PROMPT, PROMPT + STEPS):
        decoded = step(decoder, store, table, [tokens[position]], position)
        torch.testing.assert_close(decoded[0], expected[position], atol=1e-4, rtol=0)
        decode_error = max(decode_error, (decoded[0] - expected[position]).abs().max().item())
    prompt_error = (prompt - expected[:PROMPT]).abs().max().item()
    # Shown by `pytest -s`: the table in docs/performance.md.
    print(f"\n| {architecture} | {type(kernels).__name__} | {prompt_error:.1e} | {decode_error:.1e} |")


@pytest.mark.parametrize("kept", ["both", "head"])
def test_a_head_of_its_own_is_used_whatever_the_config_says(
    kept: str, kernels: Kernels, make_checkpoint: MakeCheckpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Path(shutil.copytree(make_checkpoint("qwen3"), tmp_path / "model"))
    tied = load_decoder(folder, kernels)
    tensors = load_file(folder / "model.safetensors")
    head = torch.randn(320, 64, generator=torch.Generator().manual_seed(9)) * 0.12
    if kept == "head":
        del tensors["model.embed_tokens.weight"]
    save_file({**tensors, "lm_head.weight": head}, folder / "model.safetensors", metadata={"format": "pt"})
    loaded = load_decoder(folder, kernels)
    tokens = torch.randint(0, 320, (30,), generator=torch.Generator().manual_seed(1)).tolist()
    store = KVStore(loaded.decoder.spec, 4, BLOCK_SIZE, torch.float32, CPU)
    logits = step(loaded.decoder, store, [3, 1, 0, 2], tokens, 0)
    torch.testing.assert_close(logits, oracle_logits(folder, tokens), atol=1e-4, rtol=0)
    assert loaded.decoder.spec.tied_head == (kept == "head")
    assert loaded.parameters == tied.parameters + (head.numel() if kept == "both" else 0)
    assert ("'lm_head.weight' is not 'model.embed_tokens.weight'" in caplog.text) == (kept == "both")


def test_a_head_that_is_the_embedding_is_read_once(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(make_checkpoint("qwen3"), tmp_path / "model"))
    kernels = choose_kernels("reference", CPU).kernels
    tied = load_decoder(folder, kernels)
    tensors = load_file(folder / "model.safetensors")
    twice = {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()}
    save_file(twice, folder / "model.safetensors", metadata={"format": "pt"})
    loaded = load_decoder(folder, kernels)
    assert loaded.decoder.spec == tied.decoder.spec
    assert loaded.parameters == tied.parameters


@pytest.mark.parametrize(("fmt", "width"), [("native", 40), ("int8", 40), ("native", 32), ("native", 64)])
def test_stacked_experts_may_lie_as_their_publisher_has_them(
    fmt: WeightFormat, width: int, kernels: Kernels, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    """`width`: of experts: with 32 the matrix of gates and ups is square, with 64 the other one."""
    text = {**SEEING["qwen3_vl_moe"][1]["text_config"], "moe_intermediate_size": width}
    plain = make_checkpoint("qwen3_vl_moe", text_config=text)
    folder = Path(shutil.copytree(plain, tmp_path / "model"))
    tensors = load_file(folder / "model.safetensors")
    turned = {name: t.transpose(1, 2).contiguous() if ".experts." in name else t for name, t in tensors.items()}
    save_file(turned, folder / "model.safetensors", metadata={"format": "pt"})
    logits = []
    for each in (plain, folder):
        decoder = load_decoder(each, kernels, fmt=fmt).decoder
        store = KVStore(decoder.spec, 2, BLOCK_SIZE, torch.float32, CPU)
        logits.append(step(decoder, store, [1, 0], list(range(12)), 0))
    assert torch.equal(*logits)


@pytest.mark.parametrize("architecture", ["qwen3", "qwen3-moe"])
def test_quantized_weights_stay_close(architecture: str, kernels: Kernels, make_checkpoint: MakeCheckpoint) -> None:
    folder = make_checkpoint(architecture)
    tokens = torch.randint(0, 320, (40,), generator=torch.Generator().manual_seed(2)).tolist()
    logits = {}
    for fmt in get_args(WeightFormat):
        decoder = load_decoder(folder, kernels, fmt=fmt).decoder
        store = KVStore(decoder.spec, 5, BLOCK_SIZE, torch.float32, torch.device("cpu"))
        logits[fmt] = step(decoder, store, [3, 1, 4, 0, 2], tokens, 0)
    error = {fmt: (each - logits["native"]).norm() / logits["native"].norm() for fmt, each in logits.items()}
    assert 1e-4 < error["int8"] < 0.1
    assert error["int8"] < error["int4"] < 0.4


@pytest.mark.parametrize("architecture", sorted(set(ARCHITECTURES) - BEFORE))
def test_one_call_gives_what_the_operators_give(architecture: str, make_checkpoint: MakeCheckpoint) -> None:
    if not native_status().usable:
        pytest.skip(f"native kernels: {native_status().why}")
    folder = make_checkpoint(architecture)
    tokens = torch.randint(0, 320, (48,), generator=torch.Generator().manual_seed(2)).tolist()
    logits = []
    for kernels in (CpuKernels(), OneByOne()):
        decoder = load_decoder(folder, kernels, dtype="bfloat16", fmt="int8").decoder
        one_call = type(kernels) is CpuKernels and not architecture.startswith(("olmo", "arcee", "exaone"))
        assert decoder.decodes == one_call
        store = KVStore(decoder.spec, 6, BLOCK_SIZE, torch.bfloat16, CPU)
        spans = [(0, 30), (30, 47), (47, 48)]
        logits.append([step(decoder, store, [3, 1, 4, 0, 2, 5], tokens[a:b], a) for a, b in spans])
    for whole, one_by_one in zip(*logits, strict=True):
        assert torch.equal(whole, one_by_one)


@pytest.mark.parametrize("architecture", sorted(set(ARCHITECTURES) - BEFORE))
def test_other_families_stay_close_in_8_bits(
    architecture: str, kernels: Kernels, make_checkpoint: MakeCheckpoint
) -> None:
    folder = make_checkpoint(architecture)
    tokens = torch.randint(0, 320, (72,), generator=torch.Generator().manual_seed(2)).tolist()
    decoder = load_decoder(folder, kernels, fmt="int8").decoder
    store = KVStore(decoder.spec, 9, BLOCK_SIZE, torch.float32, CPU)
    logits, expected = step(decoder, store, list(range(9)), tokens, 0), oracle_logits(folder, tokens)
    # Of experts a few are chosen otherwise.
    most = {"granite-moe": 0.2, "gpt-oss": 0.3}.get(architecture, 0.1)
    assert 1e-4 < (logits - expected).norm() / expected.norm() < most


_KINDS = ("CausalLM", "ConditionalGeneration")
LEFT_OUT = {
    **{"hidden_size": 4096, "intermediate_size": 64, "num_hidden_layers": 8, "num_attention_heads": 64},
    **{"vocab_size": 320, "max_position_embeddings": 512},
}


def configuration(architecture: str) -> str:
    """The name of transformers' class."""
    seeing = architecture.startswith(("Gemma3", "Qwen3_5"))
    return architecture.replace("ForCausalLM", "TextConfig" if seeing else "Config")


@pytest.mark.parametrize("architecture", [name for name in known() if name.endswith("ForCausalLM")])
def test_what_a_config_leaves_out_is_what_transformers_has(architecture: str) -> None:
    stated = {**LEFT_OUT}
    if architecture.startswith(("Mixtral", "Olmoe", "Qwen2Moe", "Qwen3Moe", "Qwen3_5Moe", "Qwen3Next")):
        stated |= {"num_experts": 6, "num_experts_per_tok": 2}
    if architecture.startswith(("Qwen2Moe", "Qwen3Moe", "Qwen3_5Moe", "Qwen3Next")):
        stated |= {"moe_intermediate_size": 32}
    if architecture.startswith(("Qwen2Moe", "Qwen3_5Moe", "Qwen3Next")):
        stated |= {"shared_expert_intermediate_size": 48}
    windows = [{}, {"use_sliding_window": True, "max_window_layers": 1}] if architecture.startswith("Qwen") else [{}]
    for window in windows:
        if window and architecture.startswith("Qwen2Moe"):
            window["layer_types"] = ["sliding_attention"] * 8
        theirs = getattr(transformers, configuration(architecture))(**stated, **window)
        ours = read_spec({"architectures": [architecture], **stated, **window})
        saved = theirs.to_dict()
        if architecture.startswith("Ministral3"):
            # Its own default is a rotation of a model, of which nobody leaves the rest out.
            saved["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
        assert ours == read_spec({**saved, "architectures": [architecture]})
        residual = getattr(theirs, "residual_multiplier", 1.0)
        assert ours.norm_eps == theirs.rms_norm_eps / residual**2
        ropes = saved["rope_parameters"]
        assert ours.rope.theta == ropes.get("full_attention", ropes)["rope_theta"]
        assert ours.kv_heads == (theirs.num_key_value_heads or 64)
        assert ours.tied_head == bool(theirs.tie_word_embeddings)


def test_the_context_before_yarn_may_be_stated_beside_it(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(make_checkpoint("llama2"), tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    yarn = {"rope_type": "yarn", "factor": 8.0, "rope_theta": 10000.0, "original_max_position_embeddings": 256}
    config |= {"rope_parameters": yarn, "original_max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(config))
    decoder = load_decoder(folder, choose_kernels("reference", CPU).kernels).decoder
    tokens = torch.randint(0, 320, (30,), generator=torch.Generator().manual_seed(1)).tolist()
    logits = step(decoder, KVStore(decoder.spec, 4, BLOCK_SIZE, torch.float32, CPU), [3, 1, 0, 2], tokens, 0)
    torch.testing.assert_close(logits, oracle_logits(folder, tokens), atol=1e-4, rtol=0)


def test_every_known_architecture_is_tested() -> None:
    tested = {
        name.replace("TextConfig", "Config").replace("Config", "ForCausalLM") for name, _ in ARCHITECTURES.values()
    }
    tested |= {name.replace("Config", "ForConditionalGeneration") for name, _ in SEEING.values()}
    # In tests/engine/test_hybrids.py: their steps need states.
    tested |= {"Qwen3NextForCausalLM", *(f"Qwen3_5{moe}For{kind}" for moe in ("", "Moe") for kind in _KINDS)}
    assert sorted(tested) == known()


def test_bfloat16_checkpoint_runs_in_bfloat16(
    kernels: Kernels, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(make_checkpoint("llama3"), dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    decoder = load_decoder(tmp_path, kernels).decoder
    assert decoder.dtype == torch.bfloat16
    tokens = list(range(50, 90))
    store = KVStore(decoder.spec, 5, BLOCK_SIZE, torch.bfloat16, torch.device("cpu"))
    logits = step(decoder, store, [0, 1, 2, 3, 4], tokens, 0).float()
    expected = oracle_logits(tmp_path, tokens)
    assert (logits - expected).norm() / expected.norm() < 0.05
