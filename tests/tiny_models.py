"""The models of the tests: which architectures, how small, and with which tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

COMMON: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 512,
    "initializer_range": 0.12,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": None,
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2}

KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
BY_KIND = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "linear", "rope_theta": 500000.0, "factor": 4.0},
}
YARN_BY_KIND = {
    "full_attention": {
        **{"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64},
        "attention_factor": 1.2,
    }
}
MULTIPLIERS = {
    **{"embedding_multiplier": 3.0, "residual_multiplier": 0.7, "attention_multiplier": 0.4},
    "logits_scaling": 0.75,
}
GEMMA = {
    **{"head_dim": 32, "sliding_window": 24, "layer_types": KINDS, "rope_parameters": BY_KIND},
    "query_pre_attn_scalar": 20,
}
GPT_OSS = {"head_dim": 16, "sliding_window": 24, "num_local_experts": 6, "num_experts_per_tok": 2}

# Every family the engine reads, and every branch of its specification.
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama2": ("LlamaConfig", {"num_key_value_heads": 4}),
    "llama3": (
        "LlamaConfig",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
            "tie_word_embeddings": True,
        },
    ),
    "llama-biases-linear": (
        "LlamaConfig",
        {
            "attention_bias": True,
            "mlp_bias": True,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
        },
    ),
    "mistral": ("MistralConfig", {"sliding_window": 24, "head_dim": 32}),
    "qwen2": ("Qwen2Config", {"tie_word_embeddings": True}),
    "qwen2-window": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1}),
    "qwen2.5-yarn": (
        "Qwen2Config",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "qwen3": ("Qwen3Config", {"head_dim": 32, "tie_word_embeddings": True}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "sliding_window": None}),
    "qwen2-moe": (
        "Qwen2MoeConfig",
        {**EXPERTS, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48, "decoder_sparse_step": 2},
    ),
    "qwen3-moe": (
        "Qwen3MoeConfig",
        {**EXPERTS, "moe_intermediate_size": 32, "norm_topk_prob": True, "head_dim": 32, "mlp_only_layers": [0]},
    ),
    "olmoe": ("OlmoeConfig", {**EXPERTS, "clip_qkv": 1.5}),
    "olmo2": ("Olmo2Config", {}),
    "olmo3": (
        "Olmo3Config",
        {"sliding_window": 24, "layer_types": KINDS, "rope_parameters": {**BY_KIND, **YARN_BY_KIND}},
    ),
    "phi3": ("Phi3Config", {"sliding_window": 24}),
    "phi3-longrope": (
        "Phi3Config",
        {
            "original_max_position_embeddings": 64,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.75,
                "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
                "long_factor": [1.0, 2.0, 4.0, 8.0, 12.0, 16.0],
            },
        },
    ),
    "granite": ("GraniteConfig", {**MULTIPLIERS, "tie_word_embeddings": True}),
    "granite-moe": ("GraniteMoeConfig", {**MULTIPLIERS, "num_local_experts": 6, "num_experts_per_tok": 3}),
    "smollm3": ("SmolLM3Config", {"no_rope_layers": [1, 0, 1]}),
    "seed-oss": ("SeedOssConfig", {"head_dim": 32, "attention_out_bias": True}),
    "ministral": ("MinistralConfig", {"sliding_window": 24, "layer_types": KINDS, "head_dim": 32}),
    "ministral3": (
        "Ministral3Config",
        {
            "head_dim": 32,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 128,
                "llama_4_scaling_beta": 0.1,
            },
        },
    ),
    "arcee": ("ArceeConfig", {}),
    "ernie": ("Ernie4_5Config", {"head_dim": 32, "use_bias": True}),
    "exaone4": ("Exaone4Config", {"sliding_window": 24, "layer_types": KINDS}),
    "glm": ("GlmConfig", {"head_dim": 32}),
    "glm4": ("Glm4Config", {"head_dim": 32}),
    "gemma3": ("Gemma3TextConfig", GEMMA),
    "gpt-oss": ("GptOssConfig", GPT_OSS),
    "gpt-oss-wide": (
        "GptOssConfig",
        {**GPT_OSS, "head_dim": 64, "num_key_value_heads": 1, "sliding_window": 1, "swiglu_limit": 0.5},
    ),
}
EYES = {
    **{"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"image_size": 28, "patch_size": 14},
}
QWEN3_VL: dict[str, Any] = {
    "head_dim": 32,
    "rope_parameters": {
        **{"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [6, 5, 5], "mrope_interleaved": True},
    },
}
QWEN3_VL_MOE = {**QWEN3_VL, **EXPERTS, "moe_intermediate_size": 40, "mlp_only_layers": [0]}
DEEP_EYES = {
    **{"depth": 3, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64},
    **{"patch_size": 16, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 2]},
}
# Those that see, of which the engine reads the part that writes.
SEEING: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3-seeing": (
        "Gemma3Config",
        {
            "text_config": {**COMMON, **GEMMA},
            "vision_config": {**EYES, "model_type": "siglip_vision_model"},
            "mm_tokens_per_image": 4,
        },
    ),
    "internvl": (
        "InternVLConfig",
        {
            "text_config": {**COMMON, "model_type": "qwen2"},
            "vision_config": {**EYES, "image_size": [28, 28], "patch_size": [14, 14]},
            "tie_word_embeddings": True,
        },
    ),
    "llava": (
        "LlavaConfig",
        {
            "text_config": {**COMMON, "model_type": "llama"},
            "vision_config": {**EYES, "model_type": "clip_vision_model"},
        },
    ),
    "qwen2_5_vl": (
        "Qwen2_5_VLConfig",
        {
            "text_config": {
                **COMMON,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
            },
            "vision_config": {
                **{"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64},
                "fullatt_block_indexes": [0],
            },
        },
    ),
    "qwen3_vl": (
        "Qwen3VLConfig",
        {"text_config": {**COMMON, **QWEN3_VL}, "vision_config": DEEP_EYES, "tie_word_embeddings": True},
    ),
    "qwen3_vl_moe": (
        "Qwen3VLMoeConfig",
        {"text_config": {**COMMON, **QWEN3_VL_MOE}, "vision_config": DEEP_EYES, "tie_word_embeddings": False},
    ),
    "mistral3": (
        "Mistral3Config",
        {
            "text_config": {**COMMON, "model_type": "mistral", "head_dim": 32, "sliding_window": None},
            "vision_config": {**EYES, "model_type": "pixtral", "head_dim": 16},
            "tie_word_embeddings": False,
        },
    ),
}

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

MakeCheckpoint = Callable[..., Path]


def write_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer of 320 tokens with a chat template, in the files of a Hugging Face folder."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = ["the quick brown fox jumps over the lazy dog and then the other one", "what is the capital of france"]
    tokenizer.train_from_iterator(corpus * 4, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": False, "eos_token_id": [2]}))
