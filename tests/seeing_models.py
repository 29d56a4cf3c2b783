"""Random models that see, so small that a test can ask transformers the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tiny_models import COMMON, DEEP_EYES, EYES, GEMMA, QWEN3_VL, QWEN3_VL_MOE, write_tokenizer
from tokenizers import AddedToken, Tokenizer

DELTA = {
    **{"layer_types": ["linear_attention", "full_attention", "linear_attention"], "linear_num_value_heads": 4},
    **{"linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "head_dim": 32},
    "rope_parameters": {
        **{"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        **{"mrope_section": [3, 3, 2], "mrope_interleaved": True},
    },
}
PATCHES = {
    **{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2},
    "size": {"shortest_edge": 56 * 56, "longest_edge": 112 * 112},
}
LARGER_PATCHES = {**PATCHES, "patch_size": 16, "size": {"shortest_edge": 64 * 64, "longest_edge": 128 * 128}}
MARKS = ["[IMG]", "[IMG_BREAK]", "[IMG_END]", "<img>", "</img>"]
MARK = {"image_token_index": "[IMG]", "image_token_id": "[IMG]"}
GEMMA_MARKS = {"image_token_index": "<img>", "boi_token_index": "[IMG]", "eoi_token_index": "[IMG_END]"}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}[IMG]{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PIXTRAL = {
    **{"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 112}},
    "patch_size": {"height": 14, "width": 14},
}


def write_seeing(folder: Path, architecture: str, template: str = TEMPLATE, **overrides: Any) -> Path:
    """A checkpoint whose pictures change what it writes: weights of its part that sees are as large as the others."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in MARKS])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": template}))
    name, whole, processor = SEEING[architecture]
    text = {**COMMON, **whole["text_config"], "vocab_size": 352, "max_position_embeddings": 1024}
    config = getattr(transformers, name)(
        **{**whole, "text_config": text, **overrides},
        **{key: tokenizer.token_to_id(mark) for key, mark in (GEMMA_MARKS if name == "Gemma3Config" else MARK).items()},
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForImageTextToText.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if parameter.dim() == 1 else 0.0, std=0.12)
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


PIXTRAL_EYES = {**EYES, "model_type": "pixtral", "head_dim": 16, "image_size": 112, "num_hidden_layers": 2}
CLIP = {
    **{"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 56}},
    "crop_size": {"height": 56, "width": 56},
}
TILES = {
    **{"image_processor_type": "GotOcr2ImageProcessor", "size": {"height": 56, "width": 56}},
    **{"min_patches": 1, "max_patches": 4},
}
SEEING: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "mistral3": (
        "Mistral3Config",
        {
            "text_config": {"model_type": "mistral", "head_dim": 32, "sliding_window": None},
            "vision_config": PIXTRAL_EYES,
            "tie_word_embeddings": False,
            "spatial_merge_size": 2,
        },
        PIXTRAL,
    ),
    "pixtral": (
        "LlavaConfig",
        {
            "text_config": {"model_type": "mistral", "head_dim": 32, "sliding_window": None},
            **{"vision_config": PIXTRAL_EYES, "vision_feature_layer": -1, "vision_feature_select_strategy": "full"},
        },
        PIXTRAL,
    ),
    "llava": (
        "LlavaConfig",
        {
            "text_config": {"model_type": "llama"},
            "vision_config": {**EYES, "model_type": "clip_vision_model", "image_size": 56, "num_hidden_layers": 2},
        },
        CLIP,
    ),
    "llava-siglip": (
        "LlavaConfig",
        {
            "text_config": {"model_type": "qwen2"},
            "vision_config": {**EYES, "model_type": "siglip_vision_model", "image_size": 56, "num_hidden_layers": 2},
            "vision_feature_select_strategy": "full",
        },
        {"image_processor_type": "SiglipImageProcessor", "size": {"height": 56, "width": 56}},
    ),
    "internvl": (
        "InternVLConfig",
        {
            "text_config": {"model_type": "qwen2"},
            "vision_config": {**EYES, "image_size": [56, 56], "patch_size": [14, 14]},
            **{"image_seq_length": 4, "tie_word_embeddings": False},
        },
        TILES,
    ),
    "gemma3": (
        "Gemma3Config",
        {
            "text_config": GEMMA,
            "vision_config": {**EYES, "model_type": "siglip_vision_model", "image_size": 112, "num_hidden_layers": 2},
            "mm_tokens_per_image": 16,
        },
        {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 112, "width": 112}},
    ),
    "qwen2_5_vl": (
        "Qwen2_5_VLConfig",
        {
            "text_config": {
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
            },
            "vision_config": {
                **{"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64},
                **{"patch_size": 14, "fullatt_block_indexes": [1], "window_size": 56},
            },
            "tie_word_embeddings": False,
        },
        PATCHES,
    ),
    "qwen3_vl": (
        "Qwen3VLConfig",
        {"text_config": QWEN3_VL, "vision_config": DEEP_EYES, "tie_word_embeddings": False},
        LARGER_PATCHES,
    ),
    "qwen3_vl_moe": (
        "Qwen3VLMoeConfig",
        {"text_config": QWEN3_VL_MOE, "vision_config": DEEP_EYES, "tie_word_embeddings": True},
        LARGER_PATCHES,
    ),
    "qwen3_5": (
        "Qwen3_5Config",
        {
            "text_config": DELTA,
            "vision_config": {
                **{"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64},
                **{"patch_size": 14, "num_position_embeddings": 64},
            },
            "tie_word_embeddings": True,
        },
        PATCHES,
    ),
}
"""Configuration class, configuration, and the content of preprocessor_config.json."""
