"""GGUF files of checkpoints, written by llama.cpp's own `gguf` package: its names, its rounding, its order of rows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file
from torch import Tensor

NAMES = {
    "LlamaForCausalLM": "llama",
    "MixtralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3moe",
    "Gemma3ForCausalLM": "gemma3",
    "Phi3ForCausalLM": "phi3",
    "GraniteForCausalLM": "granite",
    "GraniteMoeForCausalLM": "granitemoe",
    "Olmo2ForCausalLM": "olmo2",
    "Olmo3ForCausalLM": "olmo2",
    "OlmoeForCausalLM": "olmoe",
    "SmolLM3ForCausalLM": "smollm3",
    "SeedOssForCausalLM": "seed_oss",
    "ArceeForCausalLM": "arcee",
    "Glm4ForCausalLM": "glm4",
    "Ernie4_5ForCausalLM": "ernie4_5",
    "GptOssForCausalLM": "gpt-oss",
}
_PERMUTED = {"llama", "granite", "granitemoe", "smollm3", "arcee"}
_EXPERT = re.compile(r"(?P<before>.*\.experts)\.(?P<number>\d+)\.(?P<part>\w+)\.weight")
_MULTIPLIERS = {
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}


def write_gguf(
    folder: Path,
    target: Path,
    kind: Kind = Kind.F32,
    *,
    split: bool = False,
    extra: Mapping[str, Any] | None = None,
    drawn: Mapping[str, tuple[np.ndarray, Kind]] | None = None,
    left_out: str | None = None,
    added: str | None = None,
) -> dict[str, Tensor]:
    """The checkpoint in `folder` as the file `target`, its matrices in `kind` where their inputs allow it.

    `split`: in two files, of which `target` is the first. `extra`: of metadata; None leaves a key out. `drawn`: bytes
    of those of the checkpoint's matrices that are others. `left_out`, `added`: the file's tensors that it lacks, or has
    beside its own. The checkpoint's tensors as they are after rounding.
    """
    config = json.loads((folder / "config.json").read_text())
    arch = NAMES[config["architectures"][0]]
    files = _Files(target, arch, 2 if split else 1)
    metadata = {**model_metadata(config, arch), **tokenizer_metadata(folder), **(extra or {})}
    for key, value in metadata.items():
        if value is not None:
            _add(files.first, key, value)
    rounded = {}
    converted = _Converted(config, arch, kind, drawn or {})
    for name, tensor in load_file(folder / "model.safetensors").items():
        rounded[name] = converted.add(name, tensor.float())
    tensors = converted.tensors() | ({added: (np.ones(4, np.float32), Kind.F32)} if added else {})
    tensors.pop(left_out or "", None)
    for number, (name, (data, of)) in enumerate(sorted(tensors.items())):
        files.writers[number % len(files.writers)].add_tensor(name, data, raw_dtype=of)
    files.write()
    return rounded


def model_metadata(config: Mapping[str, Any], arch: str) -> dict[str, Any]:
    """As llama.cpp's converters derive it from a config.json."""
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    head_dim = config.get("head_dim") or hidden // heads
    rope = config.get("rope_parameters") or {}
    full = rope.get("full_attention", rope)
    turning = int(head_dim * (full.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1))
    found: dict[str, Any] = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": hidden,
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config.get("num_key_value_heads"),
        "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "attention.key_length": config.get("head_dim"),
        "attention.value_length": config.get("head_dim"),
        "rope.freq_base": float(full["rope_theta"]),
        "rope.dimension_count": turning,
        "expert_count": config.get("num_local_experts") or config.get("num_experts"),
        "expert_used_count": config.get("num_experts_per_tok"),
        "expert_feed_forward_length": config.get("moe_intermediate_size"),
        "expert_shared_feed_forward_length": config.get("shared_expert_intermediate_size"),
        "rope.freq_base_swa": rope.get("sliding_attention", {}).get("rope_theta") if arch == "gemma3" else None,
    }
    if arch in ("gemma3", "olmo2", "phi3", "gpt-oss") and config.get("sliding_window"):
        found["attention.sliding_window"] = config["sliding_window"]
        if arch in ("gemma3", "olmo2"):
            found["attention.sliding_window_pattern"] = [k == "sliding_attention" for k in config["layer_types"]]
    found |= {theirs: float(config[ours]) for ours, theirs in _MULTIPLIERS.items() if ours in config}
    match full.get("rope_type"):
        case "linear":
            found |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(full["factor"])}
        case "yarn":
            found |= {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": float(full["factor"]),
                "rope.scaling.original_context_length": full["original_max_position_embeddings"],
            }
        case "longrope":
            original = config["original_max_position_embeddings"]
            scale = config["max_position_embeddings"] / original
            found["rope.scaling.original_context_length"] = original
            found["rope.scaling.attn_factor"] = math.sqrt(1 + math.log(scale) / math.log(original))
    return {"general.type": "model"} | {f"{arch}.{key}": value for key, value in found.items()}


def tokenizer_metadata(folder: Path) -> dict[str, Any]:
    """Of a byte-level BPE tokenizer, as GPT-2's."""
    content = json.loads((folder / "tokenizer.json").read_text())
    sides = json.loads((folder / "tokenizer_config.json").read_text())
    vocabulary, added = content["model"]["vocab"], {token["content"]: token for token in content["added_tokens"]}
    ids = {**vocabulary, **{text: token["id"] for text, token in added.items()}}
    size = max(ids.values()) + 1
    texts = {number: text for text, number in ids.items()}
    kinds = {
        text: gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
        for text, token in added.items()
    }
    found = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [texts.get(number, f"[PAD{number}]") for number in range(size)],
        "token_type": [
            int(kinds.get(texts[number], gguf.TokenType.NORMAL) if number in texts else gguf.TokenType.UNUSED)
            for number in range(size)
        ],
        "merges": [" ".join(merge) for merge in content["model"]["merges"]],
        "eos_token_id": ids[sides["eos_token"]],
    }
    return {"tokenizer.chat_template": sides.get("chat_template")} | {
        f"tokenizer.ggml.{k}": v for k, v in found.items()
    }


class _Files:
    def __init__(self, target: Path, arch: str, count: int) -> None:
        self.writers = [gguf.GGUFWriter(None, arch) for _ in range(count)]
        self.first = self.writers[0]
        self._paths = (
            [target]
            if count == 1
            else [target.with_name(target.name.replace("00001-of", f"{n:05}-of")) for n in range(1, count + 1)]
        )
        if count > 1:
            for number, writer in enumerate(self.writers):
                writer.add_uint16("split.no", number)
                writer.add_uint16("split.count", count)

    def write(self) -> None:
        for path, writer in zip(self._paths, self.writers, strict=True):
            writer.write_header_to_file(path=path)
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()


class _Converted:
    """The file's tensors, of the checkpoint's."""

    def __init__(
        self, config: Mapping[str, Any], arch: str, kind: Kind, drawn: Mapping[str, tuple[np.ndarray, Kind]]
    ) -> None:
        self._config, self._arch, self._kind, self._drawn = config, arch, kind, drawn
        model = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
        self._map = gguf.get_tensor_name_map(model, config["num_hidden_layers"])
        self._heads = {
            "q_proj": config["num_attention_heads"],
            "k_proj": config.get("num_key_value_heads") or config["num_attention_heads"],
        }
        self._tensors: dict[str, tuple[np.ndarray, Kind]] = {}
        self._experts: dict[str, dict[int, np.ndarray]] = {}

    def tensors(self) -> dict[str, tuple[np.ndarray, Kind]]:
        for name, experts in self._experts.items():
            self._tensors[name] = self._coded(np.stack([experts[number] for number in sorted(experts)]))
        return self._tensors | self._rotation()

    def add(self, name: str, tensor: Tensor) -> Tensor:
        """What it is after rounding."""
        if self._arch == "gpt-oss" and ".experts." in name:
            return self._gpt_oss_experts(name, tensor)
        if name in self._drawn:
            rows, kind = self._drawn[name]
            heads = self._heads.get(name.split(".")[-2])
            ordered = permuted(rows, heads) if heads and self._arch in _PERMUTED else rows
            self._tensors[self._name(name)] = np.ascontiguousarray(ordered), kind
            return torch.from_numpy(expanded(rows, kind))
        data = tensor.numpy()
        if self._arch == "gemma3" and name.endswith("norm.weight"):
            data = data + 1
        if (expert := _EXPERT.fullmatch(name)) is not None:
            at = self._name(f"{expert['before']}.{expert['part']}.weight")
            self._experts.setdefault(at, {})[int(expert["number"])] = data
        elif name.endswith("block_sparse_moe.input_linear.weight"):
            block = name.split(".")[2]
            for part, half in zip(("gate", "up"), np.split(data, 2, axis=1), strict=True):
                self._tensors[f"blk.{block}.ffn_{part}_exps.weight"] = self._coded(np.ascontiguousarray(half))
        else:
            module = name.split(".")[-2]
            if self._arch in _PERMUTED and module in self._heads:
                data = permuted(data, self._heads[module])
            self._tensors[self._name(name)] = self._coded(data)
        return self._rounded(tensor)

    def _gpt_oss_experts(self, name: str, tensor: Tensor) -> Tensor:
        block = name.split(".")[2]
        end = "bias" if name.endswith("_bias") else "weight"
        turned = tensor if end == "bias" else tensor.transpose(1, 2)
        parts = {"down": turned} if "down_proj" in name else {"gate": turned[:, ::2], "up": turned[:, 1::2]}
        kind = Kind.F32 if end == "bias" else Kind.MXFP4
        for part, data in parts.items():
            self._tensors[f"blk.{block}.ffn_{part}_exps.{end}"] = coded(data.contiguous().numpy(), kind)
        if end == "bias":
            return tensor
        return torch.from_numpy(expanded(*coded(turned.contiguous().numpy(), kind))).transpose(1, 2).contiguous()

    def _rotation(self) -> dict[str, tuple[np.ndarray, Kind]]:
        rope = self._config.get("rope_parameters") or {}
        found = {}
        if rope.get("rope_type") == "llama3":
            dim = self._config.get("head_dim") or self._config["hidden_size"] // self._config["num_attention_heads"]
            found["rope_freqs.weight"] = _llama3_factors(rope, dim)
        for way in ("long", "short"):
            if rope.get("rope_type") == "longrope":
                found[f"rope_factors_{way}.weight"] = np.array(rope[f"{way}_factor"], np.float32)
        return {name: (factors, Kind.F32) for name, factors in found.items()}

    def _name(self, name: str) -> str:
        whole = f"{name}.weight" if name.endswith("sinks") else name
        found = self._map.get_name(whole, try_suffixes=(".weight", ".bias"))
        assert found is not None, name
        return found

    def _coded(self, data: np.ndarray) -> tuple[np.ndarray, Kind]:
        if data.shape[0] == 1:
            data = data[0]
        block = gguf.GGML_QUANT_SIZES[self._kind][0]
        small = data.ndim < 2 or data.shape[-1] % block
        return coded(data, Kind.F32 if small else self._kind)

    def _rounded(self, tensor: Tensor) -> Tensor:
        return torch.from_numpy(expanded(*self._coded(tensor.numpy()))).view(tensor.shape)


def coded(data: np.ndarray, kind: Kind) -> tuple[np.ndarray, Kind]:
    """In the bytes of a type."""
    data = np.ascontiguousarray(data, np.float32)
    return (data, kind) if kind == Kind.F32 else (gguf.quants.quantize(data, kind), kind)


def expanded(data: np.ndarray, kind: Kind) -> np.ndarray:
    """What bytes of a type stand for, by the `gguf` package."""
    return np.array(gguf.quants.dequantize(data, kind), np.float32)


def permuted(data: np.ndarray, heads: int) -> np.ndarray:
    """Rows of heads that turn by halves as llama.cpp has them, which turns neighbours."""
    return data.reshape(heads, 2, data.shape[0] // heads // 2, *data.shape[1:]).swapaxes(1, 2).reshape(data.shape)


def _llama3_factors(rope: Mapping[str, Any], dim: int) -> np.ndarray:
    frequencies = 1.0 / rope["rope_theta"] ** (np.arange(0, dim, 2) / dim)
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    original, factors = rope["original_max_position_embeddings"], []
    for length in 2 * math.pi / frequencies:
        if length < original / high:
            factors.append(1.0)
        elif length > original / low:
            factors.append(factor)
        else:
            smooth = (original / length - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)
