"""Models in GGUF files: the same logits as transformers has with the weights that the files stand for."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from adapter_files import write_adapter
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter
from gguf_files import NAMES, model_metadata, tokenizer_metadata, write_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from test_parity import BLOCK_SIZE, oracle_logits, step
from tiny_models import BY_KIND, EXPERTS, YARN_BY_KIND, MakeCheckpoint, write_tokenizer
from torch import Tensor

from headgate.engine.errors import CheckpointError
from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.cpu.kernels import native_status
from headgate.engine.kv.store import KVStore
from headgate.engine.models.generation import sampling_defaults
from headgate.engine.models.hub import locate
from headgate.engine.models.identity import checkpoint_identity
from headgate.engine.models.loader import load_decoder
from headgate.engine.models.loading import read_facts
from headgate.engine.quant.ggml import BLOCK_TYPES
from headgate.engine.quant.linear import WeightFormat
from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.folder import TokenizerError, text_revision
from headgate.engine.text.tokenizer import Tokenizer

CPU = torch.device("cpu")
TOKENS = torch.randint(0, 320, (100,), generator=torch.Generator().manual_seed(1)).tolist()
YARN = {key: value for key, value in YARN_BY_KIND["full_attention"].items() if key != "attention_factor"}
# Of each family what a GGUF file can say: no windows but where llama.cpp has some, no clipping, factors by default.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama 2": ("llama2", {}),
    "llama 3": ("llama3", {}),
    "llama with biases": ("llama-biases-linear", {}),
    "mixtral": ("mixtral", {}),
    "qwen2": ("qwen2", {}),
    "qwen2.5 yarn": ("qwen2.5-yarn", {}),
    "qwen2 moe": ("qwen2-moe", {"decoder_sparse_step": 1}),
    "qwen3": ("qwen3", {}),
    "qwen3 moe": ("qwen3-moe", {"mlp_only_layers": []}),
    "gemma3": ("gemma3", {"query_pre_attn_scalar": 32}),
    "phi3": ("phi3", {}),
    "phi3 longrope": ("phi3-longrope", {}),
    "granite": ("granite", {}),
    "granite moe": ("granite-moe", {}),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", {"rope_parameters": {**BY_KIND, "full_attention": YARN}}),
    "olmoe": ("olmoe", {**EXPERTS, "clip_qkv": None}),
    "smollm3": ("smollm3", {"no_rope_layers": None, "num_hidden_layers": 4}),
    "seed-oss": ("seed-oss", {}),
    "arcee": ("arcee", {}),
    "ernie": ("ernie", {}),
    "glm4": ("glm4", {}),
    "gpt-oss": ("gpt-oss", {}),
}


@pytest.fixture
def tiny(make_checkpoint: MakeCheckpoint) -> Path:
    return with_tokenizer(make_checkpoint("qwen3"))


def with_tokenizer(folder: Path) -> Path:
    if not (folder / "tokenizer.json").exists():
        write_tokenizer(folder)
    return folder


def logits(folder: Path, fmt: WeightFormat = "native", **options: Any) -> Tensor:
    decoder = load_decoder(folder, choose_kernels("auto", CPU).kernels, fmt=fmt, dtype="float32", **options).decoder
    store = KVStore(decoder.spec, 13, BLOCK_SIZE, torch.float32, CPU)
    return step(decoder, store, [5, 2, 7, 0, 4, 11, 1, 3, 9, 6, 12, 8, 10], TOKENS, 0)


def with_weights(folder: Path, tensors: dict[str, Tensor], target: Path) -> Path:
    """The checkpoint with other tensors, for the oracle."""
    shutil.copytree(folder, target)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, target / "model.safetensors")
    return target


@pytest.mark.parametrize("model", MODELS)
def test_logits_equal_transformers(model: str, make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    architecture, overrides = MODELS[model]
    source = with_tokenizer(make_checkpoint(architecture, **overrides))
    tensors = write_gguf(source, tmp_path / "model.gguf")
    folder = locate(str(tmp_path / "model.gguf"))
    expected = oracle_logits(with_weights(source, tensors, tmp_path / "oracle"), TOKENS)
    torch.testing.assert_close(logits(folder), expected, atol=2e-5, rtol=0)
    loaded = load_decoder(folder, choose_kernels("reference", CPU).kernels)
    facts = read_facts(folder)
    assert (facts.parameters, facts.active_parameters) == (loaded.parameters, loaded.active_parameters)
    assert facts.revision == loaded.revision
    plain = load_decoder(source, choose_kernels("reference", CPU).kernels)
    assert (loaded.parameters, loaded.active_parameters) == (plain.parameters, plain.active_parameters)


def test_every_architecture_that_is_served_is_tested(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as refused:
        locate(str(written(tmp_path, {"general.architecture": "mamba"})))
    assert set(re.findall(r"'([\w-]+)'", str(refused.value).partition("of GGUF files")[2])) == {*NAMES.values()}


@pytest.mark.parametrize(
    ("model", "left_out"),
    [("llama with biases", "llama.rope.scaling.type"), ("phi3 longrope", "phi3.rope.scaling.attn_factor")],
)
def test_older_files_that_say_less(model: str, left_out: str, make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    """A factor by itself is linear, and that of Phi's attention is what its class computes."""
    architecture, overrides = MODELS[model]
    source = with_tokenizer(make_checkpoint(architecture, **overrides))
    write_gguf(source, tmp_path / "model.gguf", extra={left_out: None})
    found = logits(locate(str(tmp_path / "model.gguf")))
    torch.testing.assert_close(found, oracle_logits(source, TOKENS), atol=2e-5, rtol=0)


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q5_1, Kind.Q4_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize("model", ["llama 3", "qwen3 moe"])
def test_rounded_weights_are_those_of_the_blocks(
    kind: Kind, model: str, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    """Queries and keys whose rows llama.cpp has in its order, experts in one tensor, an embedding that is the head."""
    architecture, overrides = MODELS[model]
    source = with_tokenizer(make_checkpoint(architecture, **overrides))
    tensors = write_gguf(source, tmp_path / "model.gguf", kind)
    expected = oracle_logits(with_weights(source, tensors, tmp_path / "oracle"), TOKENS)
    torch.testing.assert_close(logits(locate(str(tmp_path / "model.gguf"))), expected, atol=2e-5, rtol=0)


def test_a_mix_of_k_quants(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    """As Q4_K_M has them: of one file's matrices some have six bits. Blocks are of 256 inputs."""
    wide = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1, "head_dim": 64}
    source = with_tokenizer(make_checkpoint("llama2", **wide))
    mixed = {
        "q_proj": Kind.Q4_K,
        "v_proj": Kind.Q6_K,
        "up_proj": Kind.Q5_K,
        "gate_proj": Kind.Q3_K,
        "o_proj": Kind.Q2_K,
    }
    drawn = random_k_quants(source, mixed)
    tensors = write_gguf(source, tmp_path / "model.gguf", drawn=drawn)
    expected = oracle_logits(with_weights(source, tensors, tmp_path / "oracle"), TOKENS)
    torch.testing.assert_close(logits(locate(str(tmp_path / "model.gguf"))), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("fmt", ["int8", "int4"])
def test_what_is_quantized_again_is_what_the_blocks_stand_for(
    fmt: WeightFormat, make_checkpoint: MakeCheckpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = with_tokenizer(make_checkpoint("llama2"))
    tensors = write_gguf(source, tmp_path / "model.gguf", Kind.Q8_0)
    plain = with_weights(source, tensors, tmp_path / "plain")
    folder = locate(str(tmp_path / "model.gguf"))
    first = logits(folder, fmt, keep_packed=True)
    torch.testing.assert_close(first, logits(plain, fmt), atol=1e-5, rtol=0)
    if not native_status().usable:
        pytest.skip(f"plain torch keeps nothing on disk: {native_status().why}")
    kept = list(folder.rglob("*.safetensors"))
    assert [path.name for path in kept] == [f"{fmt}-float32.safetensors"]
    caplog.set_level("INFO")
    torch.testing.assert_close(logits(folder, fmt, keep_packed=True), first, atol=0, rtol=0)
    assert f"quantized weights read from {kept[0]}" in caplog.text


def test_a_split_model_is_one_model(tiny: Path, tmp_path: Path) -> None:
    write_gguf(tiny, tmp_path / "m.gguf")
    write_gguf(tiny, tmp_path / "m-00001-of-00002.gguf", split=True)
    whole, split = locate(str(tmp_path / "m.gguf")), locate(str(tmp_path / "m-00001-of-00002.gguf"))
    torch.testing.assert_close(logits(split), logits(whole), atol=0, rtol=0)
    with pytest.raises(CheckpointError, match=r"is not the first file of a split model; name m-00001-of-00002.gguf"):
        locate(str(tmp_path / "m-00002-of-00002.gguf"))
    (tmp_path / "m-00002-of-00002.gguf").rename(tmp_path / "gone")
    with pytest.raises(CheckpointError, match=r"m-00002-of-00002.gguf: cannot be read: No such file"):
        locate(str(tmp_path / "m-00001-of-00002.gguf"))
    shutil.copy(tmp_path / "m-00001-of-00002.gguf", tmp_path / "m-00002-of-00002.gguf")
    with pytest.raises(CheckpointError, match="is file 0 of 2 by its own account; file 1 of 2 is needed"):
        locate(str(tmp_path / "m-00001-of-00002.gguf"))


def test_adapters_of_the_checkpoint_are_adapters_of_its_gguf(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    """Also of queries and keys, whose rows the file has in another order, and of weights in blocks."""
    source = with_tokenizer(make_checkpoint("llama2"))
    write_adapter(source, tmp_path / "lora", tuple(f"self_attn.{part}_proj" for part in "qkvo"))
    tensors = write_gguf(source, tmp_path / "model.gguf", Kind.Q8_0)
    plain, folder = with_weights(source, tensors, tmp_path / "plain"), locate(str(tmp_path / "model.gguf"))
    merged = logits(folder, adapter=tmp_path / "lora")
    torch.testing.assert_close(merged, logits(plain, adapter=tmp_path / "lora"), atol=1e-5, rtol=0)
    assert (merged - logits(folder)).abs().max() > 0.01


def test_the_folder_has_the_texts_of_the_checkpoint(tiny: Path, tmp_path: Path) -> None:
    write_gguf(tiny, tmp_path / "model.gguf", extra={"general.sampling.temp": 0.5, "general.sampling.top_k": 20})
    folder = locate(str(tmp_path / "model.gguf"))
    ours, theirs = Tokenizer.load(folder), Tokenizer.load(tiny)
    for text in ("the quick brown fox", "<|im_start|>user\nça va? 👋\n<|im_end|>", "", "  \n\t 12 345"):
        assert ours.encode(text, add_special_tokens=True) == theirs.encode(text, add_special_tokens=True)
    assert (ours.special_ids, ours.known_eos_ids[0], ours.spelling) == (theirs.special_ids, 2, theirs.spelling)
    messages = [{"role": "user", "content": "Hi"}]
    assert ChatTemplate.load(folder).render(messages) == ChatTemplate.load(tiny).render(messages)
    defaults = sampling_defaults(folder, 320)
    assert (defaults.temperature, defaults.top_k) == (0.5, 20)


def test_the_folder_is_made_once_and_anew_where_the_file_changed(
    tiny: Path, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    file = tmp_path / "sha256-0123"  # as Ollama calls its files
    write_gguf(tiny, file)
    folder = locate(str(file))
    assert folder == tmp_path / ".headgate" / "sha256-0123"
    made, identity, texts = (folder / "config.json").stat(), checkpoint_identity(folder), text_revision(folder)
    assert locate(str(file)) == folder
    assert (folder / "config.json").stat() == made
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(file, tmp_path / "elsewhere" / "copy.gguf")
    assert checkpoint_identity(locate(str(tmp_path / "elsewhere" / "copy.gguf"))) == identity
    first = read_facts(folder).revision
    write_gguf(with_tokenizer(make_checkpoint("llama2")), file)
    assert read_facts(locate(str(file))).architecture == "LlamaForCausalLM"
    assert checkpoint_identity(folder) != identity
    assert read_facts(folder).revision != first
    assert text_revision(folder) == texts


def test_of_a_repository_the_named_files_are_downloaded(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Q8").mkdir()
    write_gguf(tiny, tmp_path / "Q8" / "m-00001-of-00002.gguf", split=True)
    asked = []

    def download(repository: str, **options: Any) -> str:
        asked.append((repository, options["revision"], options["allow_patterns"]))
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    folder = locate("owner/name-GGUF@v1:Q8/m-00001-of-00002.gguf")
    assert asked == [("owner/name-GGUF", "v1", ["Q8/m-00001-of-00002.gguf", "Q8/m-00002-of-00002.gguf"])]
    assert read_facts(folder).architecture == "Qwen3ForCausalLM"
    with pytest.raises(CheckpointError, match=r"Q8/none.gguf: cannot be read: No such file"):
        locate("owner/name-GGUF:Q8/none.gguf")


def test_where_nothing_can_be_written_beside_the_file_the_users_caches_have_the_folder(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gguf(tiny, tmp_path / "model.gguf")
    (tmp_path / ".headgate").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    folder = locate(str(tmp_path / "model.gguf"))
    assert folder.parent == tmp_path / "caches" / "headgate" / "gguf"
    torch.testing.assert_close(logits(folder), oracle_logits(tiny, TOKENS), atol=2e-5, rtol=0)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CheckpointError, match=r"model.gguf: what its metadata says can be written nowhere: .*file"):
        locate(str(tmp_path / "model.gguf"))


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ({"qwen3.block_count": None}, "the key 'qwen3.block_count' is missing"),
        ({"qwen3.block_count": 2**31}, "qwen3.block_count must be at most"),
        ({"qwen3.embedding_length": 0}, "qwen3.embedding_length must be a positive integer, got 0"),
        ({"qwen3.attention.head_count": "four"}, "qwen3.attention.head_count must be a positive integer, got 'four'"),
        ({"qwen3.attention.head_count": [4, 2, 4]}, r"head_count is \[4, 2, 4\]; it must be the same in all layers"),
        ({"qwen3.attention.value_length": 16}, "value_length must be the key_length, 32"),
        ({"qwen3.attention.sliding_window": 8}, "sliding_window is 8, which is not supported of 'qwen3'"),
        ({"qwen3.final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0, which is not supported"),
        ({"qwen3.rope.dimension_count": 16}, "rope.dimension_count is 16; it must be 32"),
        ({"qwen3.rope.scaling.type": "dynamic"}, "rope.scaling.type is 'dynamic'; it must be 'none', 'linear' or"),
        ({"qwen3.rope.scaling.type": "yarn"}, "the key 'qwen3.rope.scaling.factor' is missing"),
        ({"qwen3.rope.scaling.attn_factor": 1.5}, "rope.scaling.attn_factor is 1.5, which is not supported"),
        ({"qwen3.expert_count": 4}, "expert_count is 4, which 'qwen3' has not"),
        (
            {"tokenizer.ggml.pre": "viking"},
            "tokenizer.ggml.pre is 'viking', which is no way to cut texts that is known",
        ),
        ({"tokenizer.ggml.pre": None}, "tokenizer.ggml.pre is None"),
        ({"tokenizer.ggml.model": "bert"}, "tokenizer.ggml.model is 'bert'; 'gpt2' and 'llama' are read"),
        ({"tokenizer.ggml.tokens": None}, "tokenizer.ggml.tokens is missing, or no list of str"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "tokenizer.ggml.token_type has 2 entries for"),
        ({"tokenizer.ggml.merges": ["t zz"]}, "tokenizer.ggml.merges has 't zz'; two tokens that make a third"),
        ({"tokenizer.ggml.eos_token_id": 5000}, "eos_token_id is 5000; ids from 0 to"),
        ({"tokenizer.ggml.eos_token_id": True}, "eos_token_id is True; ids from 0 to"),
        (
            {
                "tokenizer.ggml.tokens": [*map(str, range(400))],
                "tokenizer.ggml.token_type": None,
                "tokenizer.ggml.merges": ["1 0"],
            },
            "has 400 tokens for 320 rows of 'token_embd.weight'",
        ),
        ({"tokenizer.chat_template": "{% if x %}"}, "chat template 'default', line 1: Unexpected end"),
        ({"general.sampling.temp": "hot"}, "general.sampling.temp is 'hot'; a number from 0 on is accepted"),
        ({"general.sampling.temp": float("nan")}, "general.sampling.temp is nan; a number"),
        ({"general.sampling.top_p": 1.5}, "general.sampling.top_p is 1.5; a number from 0 to 1 is accepted"),
    ],
)
def test_what_cannot_be_served_is_refused_by_its_key(
    extra: dict[str, Any], told: str, tiny: Path, tmp_path: Path
) -> None:
    write_gguf(tiny, tmp_path / "model.gguf", extra=extra)
    with pytest.raises(CheckpointError, match=f"^{tmp_path}/model.gguf: .*{told}"):
        locate(str(tmp_path / "model.gguf"))
    assert not (tmp_path / ".headgate").exists()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_metadata_is_served_or_refused(data: st.DataObject, tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    config = json.loads((tiny / "config.json").read_text())
    keys = {*model_metadata(config, "qwen3"), *tokenizer_metadata(tiny), "qwen3.attention.sliding_window_pattern"}
    values = st.sampled_from([0, 1, 3, 2**31, 0.0, -1.5, 3e38, "", "1", True, [0], [1, 1, 1], ["a"], [0.5] * 320])
    extra = data.draw(st.dictionaries(st.sampled_from(sorted(keys)), values, min_size=1, max_size=3))
    write_gguf(tiny, file, extra=extra)
    with suppress(CheckpointError, TokenizerError):
        folder = locate(str(file))
        read_facts(folder)
        Tokenizer.load(folder).encode("the quick", add_special_tokens=True)


def test_a_file_that_is_none_and_a_folder_of_files_are_refused(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(
        CheckpointError, match=r"weights.bin: does not begin with 'GGUF'; a model is a folder or a GGUF"
    ):
        locate(str(tmp_path / "weights.bin"))
    write_gguf(tiny, tmp_path / "one.gguf")
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"a folder of GGUF files; name one of them: one.gguf"):
            locate(str(tmp_path))
        shutil.copy(tiny / "config.json", tmp_path)
    made = locate(str(tmp_path / "one.gguf"))
    assert locate(str(made)) == made


@pytest.mark.parametrize(
    ("left_out", "added", "told"),
    [
        ("blk.1.attn_q.weight", None, r"'blk.1.attn_q.weight' is missing; the metadata means one of \(128, 64\)"),
        ("blk.1.ffn_norm.weight", None, "'blk.1.ffn_norm.weight' is missing"),
        (None, "blk.1.attn_gate.weight", "'blk.1.attn_gate.weight' and 0 more belong to no part of"),
    ],
)
def test_tensors_that_are_missing_or_left_are_named(
    left_out: str | None, added: str | None, told: str, tiny: Path, tmp_path: Path
) -> None:
    write_gguf(tiny, tmp_path / "model.gguf", left_out=left_out, added=added)
    folder = locate(str(tmp_path / "model.gguf"))
    with pytest.raises(CheckpointError, match=f"^{tmp_path}/model.gguf: tensor {told}"):
        logits(folder)


def test_factors_of_a_rotation_that_are_too_few_are_named(tiny: Path, tmp_path: Path) -> None:
    write_gguf(tiny, tmp_path / "model.gguf", added="rope_freqs.weight")
    with pytest.raises(CheckpointError, match=r"'rope_freqs.weight' is in torch.float32 of \(4,\); F32 of \(16,\)"):
        locate(str(tmp_path / "model.gguf"))


@pytest.mark.parametrize(
    ("left_out", "told"),
    [("bias", "'blk.1.ffn_up_exps.bias' in F32 is missing"), ("weight", "_exps.weight' is missing")],
)
def test_experts_of_gpt_oss_that_are_missing_are_named(
    left_out: str, told: str, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    source = with_tokenizer(make_checkpoint("gpt-oss"))
    write_gguf(source, tmp_path / "model.gguf", left_out=f"blk.1.ffn_up_exps.{left_out}")
    with pytest.raises(CheckpointError, match=rf"^{tmp_path}/model.gguf: the tensor .*{told}"):
        logits(locate(str(tmp_path / "model.gguf")))


def written(folder: Path, metadata: dict[str, str]) -> Path:
    """A file of metadata alone."""
    writer = GGUFWriter(None, metadata["general.architecture"])
    writer.write_header_to_file(path=folder / "metadata.gguf")
    writer.write_kv_data_to_file()
    writer.close()
    return folder / "metadata.gguf"


def random_k_quants(source: Path, kinds: dict[str, Kind]) -> dict[str, tuple[np.ndarray, Kind]]:
    """Random blocks with small scales for matrices of these modules: the package does not round to them."""
    generator, drawn = np.random.default_rng(5), {}
    for name, tensor in load_file(source / "model.safetensors").items():
        kind = kinds.get(name.split(".")[-2])
        if kind is not None:
            block = BLOCK_TYPES[kind]
            rows = generator.integers(0, 256, (tensor.shape[0], tensor.shape[1] // 256, block.nbytes), dtype=np.uint8)
            small = np.frombuffer(np.float16(2e-4 if kind != Kind.Q2_K else 5e-3).tobytes(), np.uint8)
            for at in SCALES[kind]:
                rows[..., at : at + 2] = small
            drawn[name] = rows.reshape(tensor.shape[0], -1), kind
    return drawn


SCALES = {Kind.Q2_K: (80, 82), Kind.Q3_K: (108,), Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2), Kind.Q6_K: (208,)}
