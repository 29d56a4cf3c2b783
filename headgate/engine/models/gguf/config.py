"""The config.json that a GGUF file's metadata and tensors stand for: which architecture, and its sizes and factors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy

from headgate.engine.errors import CheckpointError
from headgate.engine.models.gguf.file import GgufModel

ARCHITECTURE = "general.architecture"
EMBEDDING, HEAD = "token_embd.weight", "output.weight"
FREQUENCIES = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
"""What frequencies of rotation are divided by: of all, or of long and of short contexts."""

_SIZES: Mapping[str, str] = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
"""What each model must say, by the key of config.json."""
_READ = frozenset(
    {
        *_SIZES,
        *("attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.sliding_window"),
        *("attention.sliding_window_pattern", "rope.freq_base", "rope.dimension_count", "rope.scaling.type"),
        *("rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.yarn_beta_fast"),
        *("rope.scaling.yarn_beta_slow", "rope.scaling.attn_factor"),
        *("expert_count", "expert_used_count"),
        # The tensors tell these, and what was done before the file was written changes nothing any more.
        *("expert_feed_forward_length", "expert_shared_feed_forward_length", "vocab_size", "tensor_data_layout"),
        "rope.scaling.finetuned",
    }
)
_EXPERTS = {"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"}


@dataclass(frozen=True, slots=True)
class _Family:
    """What llama.cpp calls an architecture stands for.

    Attributes:
        name: the architecture in config.json.
        mixture: the one that it is where there are experts; None where there are none.
        keys: of the metadata beyond those that all have, by the key of config.json.
        fixed: what no file says, and llama.cpp and the published config.json have.
        partial: heads of which a part turns.
        windows: layers may have windows.
    """

    name: str | None
    mixture: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    partial: bool = False
    windows: bool = False


_GRANITE = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
_FAMILIES: Mapping[str, _Family] = {
    "llama": _Family("LlamaForCausalLM", "MixtralForCausalLM"),
    "qwen2": _Family("Qwen2ForCausalLM"),
    "qwen2moe": _Family(None, "Qwen2MoeForCausalLM", fixed={"norm_topk_prob": False}),
    "qwen3": _Family("Qwen3ForCausalLM"),
    "qwen3moe": _Family(None, "Qwen3MoeForCausalLM", fixed={"norm_topk_prob": True}),
    "gemma3": _Family("Gemma3ForCausalLM", keys={"rope.freq_base_swa": "rope_local_base_freq"}, windows=True),
    "phi3": _Family("Phi3ForCausalLM", partial=True, windows=True),
    "granite": _Family("GraniteForCausalLM", keys=_GRANITE),
    "granitemoe": _Family(None, "GraniteMoeForCausalLM", keys=_GRANITE),
    "olmo2": _Family("Olmo2ForCausalLM", windows=True),
    "olmoe": _Family(None, "OlmoeForCausalLM", fixed={"norm_topk_prob": False}),
    "smollm3": _Family("SmolLM3ForCausalLM"),
    "seed_oss": _Family("SeedOssForCausalLM"),
    "arcee": _Family("ArceeForCausalLM"),
    "glm4": _Family("Glm4ForCausalLM", partial=True),
    "ernie4_5": _Family("Ernie4_5ForCausalLM"),
    "gpt-oss": _Family(None, "GptOssForCausalLM", windows=True),
}

_LARGEST_GEMMA_LAYERS = 62
"""Gemma 3 27B scales its products of queries and keys by its width, the others by their heads'; no file says which."""


_STATED: Mapping[str, str] = {
    **{ours: theirs for theirs, ours in _SIZES.items()},
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rope_theta": "rope.freq_base",
    "rope_scaling.rope_theta": "rope.freq_base",
    "rope_scaling.factor": "rope.scaling.factor",
    "rope_scaling.attention_factor": "rope.scaling.attn_factor",
    "rope_scaling.original_max_position_embeddings": "rope.scaling.original_context_length",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "rope_scaling.beta_fast": "rope.scaling.yarn_beta_fast",
    "rope_scaling.beta_slow": "rope.scaling.yarn_beta_slow",
    "partial_rotary_factor": "rope.dimension_count",
    "sliding_window": "attention.sliding_window",
    "sliding_window_pattern": "attention.sliding_window_pattern",
    **{ours: theirs for theirs, ours in _EXPERTS.items()},
}
"""What is refused by the names of config.json, by those of the metadata."""


def gguf_config(model: GgufModel) -> dict[str, Any]:
    """What the config.json of the same model has.

    Raises:
        CheckpointError: the metadata lacks a key, or says what cannot be served; naming it.
    """
    return _Reading(model).config()


def in_metadata(model: GgufModel, told: str) -> str:
    """What was said of a config.json made here, by the keys that its values are from."""
    kind = str(model.metadata.get(ARCHITECTURE))
    own = _FAMILIES[kind].keys if kind in _FAMILIES else {}
    names = {**_STATED, **{ours: theirs for theirs, ours in own.items()}}
    return re.sub(
        r"[\w.]+",
        lambda word: f"{kind}.{names[word[0]]}" if word[0] in names else word[0],
        told.removeprefix("config.json: "),
    )


class _Reading:
    """Of one model's metadata."""

    def __init__(self, model: GgufModel) -> None:
        self._model = model
        self._kind = model.metadata.get(ARCHITECTURE)
        if not isinstance(self._kind, str) or self._kind not in _FAMILIES:
            known = ", ".join(map(repr, _FAMILIES))
            raise CheckpointError(f"{ARCHITECTURE} is {self._kind!r}; of GGUF files {known} are served")
        self._family = _FAMILIES[self._kind]
        prefix = f"{self._kind}."
        self._stated = {
            key.removeprefix(prefix): value for key, value in model.metadata.items() if key.startswith(prefix)
        }

    def config(self) -> dict[str, Any]:
        """See gguf_config."""
        for key, value in self._stated.items():
            if key not in _READ and key not in self._family.keys:
                raise CheckpointError(f"{self._kind}.{key} is {_shown(value)}, which is not supported")
        if EMBEDDING not in self._model.tensors or len(self._model.tensors[EMBEDDING].shape) != 2:
            raise CheckpointError(f"the tensor {EMBEDDING!r} of two dimensions is missing")
        config: dict[str, Any] = {key: self._needed(name) for name, key in _SIZES.items()}
        heads, hidden = config["num_attention_heads"], config["hidden_size"]
        config["num_key_value_heads"] = self._number("attention.head_count_kv", heads)
        head_dim = self._number("attention.key_length")
        if head_dim is None and isinstance(heads, int) and isinstance(hidden, int) and heads > 0:
            head_dim = hidden // heads
        if self._number("attention.value_length", head_dim) != head_dim:
            raise CheckpointError(f"{self._kind}.attention.value_length must be the key_length, {head_dim}")
        config["head_dim"] = head_dim
        config["vocab_size"] = self._model.tensors[EMBEDDING].shape[0]
        config["tie_word_embeddings"] = HEAD not in self._model.tensors
        config["dtype"] = "float32" if self._all_float32() else "bfloat16"
        for name, key in self._family.keys.items():
            if (value := self._number(name)) is not None:
                config[key] = value
        config |= {**self._family.fixed, **self._biases(), **self._rotation(config), **self._windows(config)}
        return {"architectures": [self._architecture(config)], **config}

    def _architecture(self, config: dict[str, Any]) -> str:
        count, family = self._number("expert_count", 0), self._family
        name = family.mixture if count else family.name
        if name is None:
            raise CheckpointError(f"{self._kind}.expert_count is {count}, which {self._kind!r} has not")
        if count:
            stack = self._model.tensors.get("blk.0.ffn_gate_exps.weight")
            if stack is None or stack.shape[0] != count:
                found = "missing" if stack is None else f"of {stack.shape[0]}"
                raise CheckpointError(f"{self._kind}.expert_count is {count}, 'blk.0.ffn_gate_exps.weight' is {found}")
            config |= {key: self._needed(key_of) for key_of, key in _EXPERTS.items()}
            config["num_local_experts"] = count
            for tensor, key, at in (
                ("blk.0.ffn_gate_exps.weight", "moe_intermediate_size", 1),
                ("blk.0.ffn_gate_shexp.weight", "shared_expert_intermediate_size", 0),
            ):
                if tensor in self._model.tensors:
                    config[key] = self._model.tensors[tensor].shape[at]
            if self._kind == "gpt-oss" and "moe_intermediate_size" in config:
                config["intermediate_size"] = config["moe_intermediate_size"]
        if name == "Olmo2ForCausalLM" and config.get("sliding_window"):
            name = "Olmo3ForCausalLM"
        if name == "Gemma3ForCausalLM":
            largest = config["num_hidden_layers"] == _LARGEST_GEMMA_LAYERS
            config["query_pre_attn_scalar"] = (
                config["hidden_size"] // config["num_attention_heads"] if largest else config["head_dim"]
            )
        return name

    def _biases(self) -> dict[str, bool]:
        """By the names that families have for them."""
        tensors = self._model.tensors
        qkv, output, mlp = (
            any(f"blk.0.{name}.bias" in tensors for name in names)
            for names in (("attn_q", "attn_qkv"), ("attn_output",), ("ffn_down",))
        )
        return {
            **{"attention_bias": qkv, "qkv_bias": qkv, "use_bias": qkv},
            **{"attention_out_bias": output, "mlp_bias": mlp},
        }

    def _rotation(self, config: Mapping[str, Any]) -> dict[str, Any]:
        head_dim, context = config["head_dim"], config["max_position_embeddings"]
        found: dict[str, Any] = {"rope_theta": self._number("rope.freq_base", 10000.0)}
        turning = self._number("rope.dimension_count", head_dim)
        if self._family.partial:
            found["partial_rotary_factor"] = turning / head_dim if _positive(turning, head_dim) else turning
        elif turning != head_dim:
            raise CheckpointError(f"{self._kind}.rope.dimension_count is {turning!r}; it must be {head_dim}")
        scaling: dict[str, Any]
        factor, stretch = self._number("rope.scaling.factor"), self._number("rope.scaling.attn_factor")
        kind = self._stated.get("rope.scaling.type", "none" if factor is None else "linear")
        original = self._number("rope.scaling.original_context_length", context)
        if FREQUENCIES in self._model.tensors:
            if kind != "none":
                raise CheckpointError(f"{self._kind}.rope.scaling.type is {kind!r} beside {FREQUENCIES!r}")
            # What they are divided by does not depend on the context.
            factors = self._factors(FREQUENCIES, turning)
            scaling = {"rope_type": "longrope", "long_factor": factors, "short_factor": factors}
            scaling |= {"attention_factor": 1.0, "original_max_position_embeddings": context}
        elif LONG in self._model.tensors:
            found["original_max_position_embeddings"] = original
            scaling = {"rope_type": "longrope", "attention_factor": stretch}
            scaling |= {"long_factor": self._factors(LONG, turning), "short_factor": self._factors(SHORT, turning)}
        elif kind in ("none", "linear", "yarn"):
            if stretch not in (None, 1.0):
                raise CheckpointError(f"{self._kind}.rope.scaling.attn_factor is {stretch}, which is not supported")
            scaling = {} if kind == "none" else {"rope_type": kind, "factor": self._needed("rope.scaling.factor")}
            if kind == "yarn":
                scaling |= {
                    "original_max_position_embeddings": original,
                    "beta_fast": self._number("rope.scaling.yarn_beta_fast", 32.0),
                    "beta_slow": self._number("rope.scaling.yarn_beta_slow", 1.0),
                    # llama.cpp rounds the bounds, but gpt-oss was not trained so.
                    "truncate": self._kind != "gpt-oss",
                }
        else:
            wanted = f"'none', 'linear' or 'yarn', or 'longrope' beside {LONG!r}"
            raise CheckpointError(f"{self._kind}.rope.scaling.type is {kind!r}; it must be {wanted}")
        return {**found, "rope_scaling": scaling} if scaling else found

    def _windows(self, config: Mapping[str, Any]) -> dict[str, Any]:
        window, pattern = (self._stated.get(f"attention.sliding_window{end}") for end in ("", "_pattern"))
        if not self._family.windows and window:
            raise CheckpointError(
                f"{self._kind}.attention.sliding_window is {_shown(window)}, which is not supported of {self._kind!r}"
            )
        found = {"sliding_window": window}
        if isinstance(pattern, list):
            layers = config["num_hidden_layers"]
            if len(pattern) != layers:
                raise CheckpointError(
                    f"{self._kind}.attention.sliding_window_pattern has {len(pattern)} entries for {layers} layers"
                )
            found["layer_types"] = ["sliding_attention" if each else "full_attention" for each in pattern]
        elif pattern is not None:
            found["sliding_window_pattern"] = pattern
        return found

    def _factors(self, name: str, turning: Any) -> list[float]:
        """Of the pairs of so many features that turn."""
        tensor = self._model.tensors.get(name)
        if tensor is None or tensor.kind != 0 or tensor.shape != (turning // 2,):
            found = "missing" if tensor is None else f"in {tensor.type_name} of {tensor.shape}"
            raise CheckpointError(f"the tensor {name!r} is {found}; F32 of {(turning // 2,)} is needed")
        raw = self._model.files[tensor.path][tensor.start : tensor.start + tensor.nbytes]
        return [float(factor) for factor in numpy.frombuffer(raw, numpy.float32)]

    def _all_float32(self) -> bool:
        return all(tensor.kind == 0 for tensor in self._model.tensors.values())

    def _number(self, key: str, default: Any = None) -> Any:
        """What a key says; of one that lists each layer's what they have in common."""
        value = self._stated.get(key, default)
        if isinstance(value, list):
            if len(set(value)) != 1:
                raise CheckpointError(f"{self._kind}.{key} is {_shown(value)}; it must be the same in all layers")
            value = value[0]
        # As it was written before it was float32.
        return float(str(numpy.float32(value))) if isinstance(value, float) else value

    def _needed(self, key: str) -> Any:
        value = self._number(key)
        if value is None:
            raise CheckpointError(f"the key {f'{self._kind}.{key}'!r} is missing")
        return value


def _positive(*values: object) -> bool:
    return all(isinstance(value, int | float) and value > 0 for value in values)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
