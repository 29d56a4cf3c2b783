"""What the student leaves to the large model: it says so with a token that only those see who ask for it.

`python -m headgate.training.handing DIR` teaches it to the checkpoint in the folder. Nothing but that token's row of
the output layer changes, so that the model answers as before where the token is forbidden.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from headgate.engine.demo.tasks import Sample, generate
from headgate.engine.demo.tokenizer import conversation_segments, load_tokenizer, token_id
from headgate.training.batches import collate, encode, last_answer

HAND_OVER = "~"
"""No answer of the demo tasks begins with it, and few prompts have it."""
LEFT: tuple[tuple[str, int, str], ...] = (
    ("tables", 1, r"row "),
    ("tables", 2, r"(most|count|place)\b"),
    ("lists", 1, r"often\b"),
    ("lists", 2, r"(common|second|third|fourth|fifth|sixth|seventh|eighth)\b"),
    ("lists", 3, r"unique\b"),
    ("strings", 1, r"remove\b"),
    ("strings", 2, r"(insert|replace)\b"),
    ("arithmetic", 2, r"\d{3} - "),
    ("arithmetic", 3, r"(\d{4} - |\d+ [-+*] \d+ [-+*] \d+ [-+*] )"),
    ("conversion", 3, r"\w+day \+ "),
    ("puzzles", 2, r"odd\b"),
    ("puzzles", 3, r"position\b"),
)
"""Family, level from which on, and how the content of a task begins: of these the teacher has most right for each
millisecond that it takes longer, beside the student."""
SAMPLES = 20_000
_TOGETHER = 128
_DECAY = 1e-4
_QUIET = 10.0
"""How much a token inside an answer weighs beside a beginning: said there, the mark would spoil what is right."""
_APART = 2.0
"""By how much it is to be less likely there than the likeliest, in natural log-odds."""


def left(sample: Sample) -> bool:
    """Whether the student leaves it to the large model."""
    return any(
        family == sample.family and sample.difficulty >= level and re.match(kind, sample.content)
        for family, level, kind in LEFT
    )


@dataclass(frozen=True, slots=True)
class States:
    """A model's last hidden states, float32: `first` [samples, hidden] where answers begin, `later` [tokens, hidden]
    inside them. `left` [samples]: 1.0 for what is to be handed over."""

    first: Tensor
    left: Tensor
    later: Tensor


@torch.no_grad()
def read_states(model: Any, tokenizer: Tokenizer, samples: Sequence[Sample]) -> States:
    """What the model makes of the samples, answered at once."""
    rows = [(encode(tokenizer, conversation_segments(replace(s, working=""))), float(left(s))) for s in samples]
    rows.sort(key=lambda row: len(row[0][0]))
    first, wanted, later = list[Tensor](), list[float](), list[Tensor]()
    for start in range(0, len(rows), _TOGETHER):
        chosen = rows[start : start + _TOGETHER]
        batch = collate([row for row, _ in chosen], 0)
        hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state
        for place, (row, label) in enumerate(chosen):
            begin, end = last_answer(row), len(row[0])
            first.append(hidden[place, begin - 1].clone())
            later.append(hidden[place, begin : end - 1].clone())
            wanted.append(label)
    return States(torch.stack(first), torch.tensor(wanted), torch.cat(later))


def fit_row(rows: Tensor, states: States, token: int) -> Tensor:
    """The row of the output layer, [hidden], by which the token is likeliest just where it is to be said.

    Logistic regression on how far its logit is above the highest other one, `rows` [vocabulary, hidden] being those of
    all tokens; by L-BFGS, with a penalty on the row's length.
    """
    first, later = (_highest(rows, part, token) for part in (states.first, states.later))
    row = rows[token].clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([row], max_iter=300, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        said = binary_cross_entropy_with_logits(states.first @ row - first, states.left, reduction="sum")
        inside = states.later @ row - later + _APART
        quiet = binary_cross_entropy_with_logits(inside, torch.zeros(len(later)), reduction="sum")
        total: Tensor = (said + _QUIET * quiet) / len(states.first) + _DECAY * row.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return row.detach()


def _highest(rows: Tensor, states: Tensor, token: int) -> Tensor:
    """Of the logits of all tokens but this one, [states]."""
    found = list[Tensor]()
    for part in torch.split(states, 16_384):
        logits = part @ rows.T
        logits[:, token] = -torch.inf
        found.append(logits.max(-1).values)
    return torch.cat(found)


def teach(folder: Path, *, seed: int, samples: int = SAMPLES) -> float:
    """Teaches it to the checkpoint, in place, on samples of the train split.

    Gives the share of what is to be handed over that the model hands over then, on these samples.
    """
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(folder)
    token = token_id(tokenizer, HAND_OVER)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    states = read_states(model, tokenizer, list(generate(samples, seed=seed, split="train")))
    name, path = "model.embed_tokens.weight", folder / "model.safetensors"
    weights = load_file(path)
    rows = weights[name].float()
    row = fit_row(rows, states, token)
    weights[name][token] = row.to(weights[name].dtype)
    save_file(weights, path, {"format": "pt"})
    settings = folder / "generation_config.json"
    config = json.loads(settings.read_text(encoding="utf-8"))
    config |= {"begin_suppress_tokens": [token], "hand_over": HAND_OVER}
    settings.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    said = states.first @ weights[name][token].float() > _highest(rows, states.first, token)
    return float(said[states.left > 0].float().mean())


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line and teaches a folder."""
    parser = argparse.ArgumentParser(prog="python -m headgate.training.handing", description="Teach it to hand over.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="checkpoint folder of a student, changed in place")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="samples of the train split")
    parser.add_argument("--seed", type=int, default=0, help="seed of the samples")
    options = parser.parse_args(arguments)
    if options.samples < 1:
        parser.error(f"--samples is {options.samples}; it must be at least 1")
    share = teach(options.folder, seed=options.seed, samples=options.samples)
    print(f"hands over {share:.1%} of what it is to hand over")


if __name__ == "__main__":
    main()
