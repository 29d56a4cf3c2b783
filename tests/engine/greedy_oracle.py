"""What transformers writes greedily, asked in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def likeliest(model: Any, prompts: Sequence[list[int]], told: Sequence[list[int]]) -> list[list[int]]:
    """The token that a model of transformers has for likeliest at each place where one is told.

    Equal to `told` only where that is the model's greedy output: the first token follows the prompt, each other one
    the same tokens before it. Generating it takes a pass for each.
    """
    found = []
    for prompt, after in zip(prompts, told, strict=True):
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *after[:-1]]])).logits[0]
        found.append(logits[len(prompt) - 1 :].argmax(-1).tolist())
    return found
