"""gpt-oss: experts in MXFP4 stay in their 4 bits, and logits and tokens are those of transformers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from engine_site import serving
from packed_checkpoints import put_experts_in_mxfp4
from safetensors.torch import load_file, save_file
from tiny_models import write_tokenizer
from torch import Tensor

from headgate.engine.errors import CheckpointError
from headgate.engine.front.local import LocalModel
from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.cpu.kernels import CpuKernels, native_status
from headgate.engine.kernels.interface import AttentionBatch, Kernels
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kv.store import KVStore
from headgate.engine.models.architectures import read_spec
from headgate.engine.models.decoder import DecoderWeights
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.models.loader import load_decoder
from headgate.engine.models.loading import read_facts
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings

STATUS = native_status()
native = pytest.mark.skipif(not STATUS.usable, reason=f"native kernels: {STATUS.why}")
CPU = torch.device("cpu")
SCALES = "model.layers.1.mlp.experts.down_proj_scales"
TOKENS = torch.randint(3, 320, (90,), generator=torch.Generator().manual_seed(1)).tolist()


class OneByOne(CpuKernels):
    """The same operators, without the step."""

    def whole_step(self, spec: DecoderSpec, weights: DecoderWeights) -> None:  # noqa: ARG002
        return None


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gpt-oss of three layers in bfloat16, its experts in MXFP4."""
    folder = tmp_path_factory.mktemp("gpt-oss")
    torch.manual_seed(0)
    config = transformers.GptOssConfig(
        hidden_size=96,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=320,
        num_local_experts=5,
        num_experts_per_tok=2,
        sliding_window=24,
        initializer_range=0.1,
        pad_token_id=None,
        eos_token_id=2,
    )
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 or name.endswith("_bias"):
            torch.nn.init.normal_(parameter, mean=parameter.mean().item(), std=0.2)
    model.save_pretrained(folder)
    put_experts_in_mxfp4(folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture
def folder(drawn: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    for file in drawn.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def theirs(folder: Path) -> Any:
    scheme = transformers.Mxfp4Config(dequantize=True)
    model = transformers.GptOssForCausalLM.from_pretrained(
        folder, quantization_config=scheme, attn_implementation="eager"
    )
    return model.float()


def logits(decoder: LanguageModel, tokens: list[int]) -> Tensor:
    """Of the whole prompt but for the last five tokens, and then of these one by one."""
    store = KVStore(decoder.spec, 12, 8, decoder.dtype, CPU)
    found, table = [], [7, 2, 9, 0, 4, 11, 1, 3, 10, 5, 8, 6]
    for start, stop in ((0, len(tokens) - 5), *((p, p + 1) for p in range(len(tokens) - 5, len(tokens)))):
        slots = torch.tensor([table[p // 8] * 8 + p % 8 for p in range(start, stop)])
        batch = AttentionBatch([stop - start], [stop], [table], slots, 8)
        with torch.inference_mode():
            given = torch.tensor(tokens[start:stop]), torch.arange(start, stop)
            found.append(decoder.forward(*given, batch, store.layers, torch.arange(stop - start)))
    return torch.cat(found)


@pytest.mark.parametrize("kernels", [ReferenceKernels(), pytest.param(None, marks=native)])
def test_logits_are_those_of_transformers(drawn: Path, kernels: Kernels | None) -> None:
    kernels = kernels or choose_kernels("auto", CPU).kernels
    with torch.inference_mode():
        expected = theirs(drawn)(torch.tensor([TOKENS])).logits[0]
    loaded = load_decoder(drawn, kernels, dtype="float32")
    torch.testing.assert_close(logits(loaded.decoder, TOKENS), expected, atol=2e-4, rtol=1e-5)
    assert loaded.parameters == theirs(drawn).num_parameters() == read_facts(drawn).parameters
    assert loaded.active_parameters == loaded.parameters - 3 * 3 * (3 * 96 * 64)


@native
def test_experts_keep_their_bits_whatever_the_rest_has(drawn: Path) -> None:
    kernels = choose_kernels("auto", CPU).kernels
    decoders = {fmt: load_decoder(drawn, kernels, fmt=fmt).decoder for fmt in ("native", "int8", "int4")}
    plain = load_decoder(drawn, ReferenceKernels()).decoder
    exact = {fmt: logits(decoder, TOKENS) for fmt, decoder in decoders.items()}
    for fmt, decoder in decoders.items():
        # 17 bytes for 32 weights, and float32 biases: 4 bits and a quarter.
        weights, biases = 3 * 96 * 64 * 17 // 32, 4 * (2 * 64 + 96)
        assert decoder.expert_bytes == 3 * (weights + biases + 4 * 32 // 5)
        off = (exact[fmt].float() - exact["native"].float()).norm() / exact["native"].float().norm()
        assert off < {"native": 1e-9, "int8": 0.15, "int4": 0.6}[fmt]
    assert plain.expert_bytes == 3 * (3 * 96 * 64 * 2)
    assert decoders["int8"].weight_bytes < decoders["native"].weight_bytes


@native
def test_one_call_gives_the_bits_of_the_operators(drawn: Path) -> None:
    whole, single = (load_decoder(drawn, kernels).decoder for kernels in (CpuKernels(), OneByOne()))
    assert whole.decodes
    assert not single.decodes
    assert torch.equal(logits(whole, TOKENS), logits(single, TOKENS))


def generated(folder: Path, prompt: list[int]) -> list[int]:
    model = theirs(folder)
    model.generation_config.eos_token_id = None
    tokens = torch.tensor([prompt])
    with torch.inference_mode():
        options: dict[str, Any] = {"attention_mask": torch.ones_like(tokens), "do_sample": False}
        found: list[int] = model.generate(tokens, max_new_tokens=24, **options)[0, len(prompt) :].tolist()
    return found


async def complete(model: LocalModel, prompt: list[int]) -> list[int]:
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    return [token async for delta in model.generate("r", tuple(prompt), params) for token in delta.token_ids]


def test_greedy_tokens_are_those_of_transformers(drawn: Path) -> None:
    prompts = [TOKENS[:37], TOKENS[5:10], TOKENS]
    expected = [generated(drawn, prompt) for prompt in prompts]

    async def all_at_once(model: LocalModel) -> list[list[int]]:
        return [*await asyncio.gather(*(complete(model, prompt) for prompt in prompts))]

    settings = EngineSettings(max_step_tokens=13, max_running=5, block_size=4)
    with serving(drawn, settings) as model:
        assert asyncio.run(all_at_once(model)) == expected
        assert (model.info.experts, model.info.experts_per_token) == (5, 2)


def test_damage_is_named(folder: Path) -> None:
    path, kernels = folder / "model.safetensors", ReferenceKernels()
    tensors = load_file(path)
    for scales, message in (
        (tensors[SCALES].clone().index_fill_(1, torch.tensor([7]), 255), "down_proj': a scale is no number"),
        (tensors[SCALES][:, :, 1:].contiguous(), r"down_proj_scales' has shape \(5, 96, 1\), .* means \(5, 96, 2\)"),
    ):
        save_file({**tensors, SCALES: scales}, path, {"format": "pt"})
        with pytest.raises(CheckpointError, match=message):
            load_decoder(folder, kernels)


def test_what_cannot_be_served_is_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    with pytest.raises(CheckpointError, match=r"swiglu_alpha 1\.5 is not supported; it must be 1\.702"):
        read_spec({**config, "swiglu_alpha": 1.5})
    other = {**config, "architectures": ["LlamaForCausalLM"]}
    with pytest.raises(CheckpointError, match="quantization_config 'mxfp4' is not supported"):
        read_spec(other)


def test_what_published_files_leave_out_is_as_transformers_has_it(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    left_out = ("layer_types", "rope_parameters", "swiglu_alpha", "swiglu_limit", "attention_bias", "rms_norm_eps")
    spec = read_spec({key: value for key, value in config.items() if key not in left_out})
    assert spec == read_spec(config)
    scaling = {**config["rope_parameters"], "rope_theta": None}
    older = {key: value for key, value in config.items() if key != "rope_parameters"}
    assert read_spec({**older, "rope_theta": 150000, "rope_scaling": scaling}) == spec
    assert read_spec({**older, "rope_scaling": scaling}) == spec
