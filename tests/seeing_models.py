"""Random models that see, so small that a test can ask transformers the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tiny_models import COMMON, EYES, write_tokenizer
from tokenizers import AddedToken, Tokenizer

MARKS = ["[IMG]", "[IMG_BREAK]", "[IMG_END]"]
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
        **{**whole, "text_config": text, "image_token_index": tokenizer.token_to_id("[IMG]"), **overrides}
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForImageTextToText.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if parameter.dim() == 1 else 0.0, std=0.12)
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


PIXTRAL_EYES = {**EYES, "model_type": "pixtral", "head_dim": 16, "image_size": 112, "num_hidden_layers": 2}
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
}
"""Configuration class, configuration, and the content of preprocessor_config.json."""
