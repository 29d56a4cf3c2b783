"""Accuracy by family of a checkpoint folder: `python -m headgate.engine.demo.evaluate DIR --samples 500`.

Answers are generated greedily by `transformers` on samples of the test split and graded by exact match.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headgate.engine.demo.tasks import FAMILIES, Sample, generate, grade

LONGEST_ANSWER = 64
"""Tokens after which an answer counts as never ending; the longest reference is about 50."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said to a sample, whether it is right, and whether it ended by itself."""

    sample: Sample
    text: str
    right: bool
    ended: bool


@dataclass(frozen=True, slots=True)
class Score:
    """A share of right answers: over `count` samples of a family, of one difficulty or (0) of all."""

    family: str
    difficulty: int
    right: int
    count: int

    @property
    def accuracy(self) -> float:
        """From 0 to 1."""
        return self.right / self.count


def answers(folder: Path, samples: Sequence[Sample], *, rows: int = 64, device: str = "cpu") -> Iterator[Answer]:
    """The model's greedy answers, generated `rows` at a time, shortest prompts first."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": turn.role, "content": turn.content} for turn in sample.messages],
            add_generation_prompt=True,
            tokenize=False,
        )
        for sample in samples
    ]
    order = sorted(range(len(samples)), key=lambda index: len(prompts[index]))
    for start in range(0, len(order), rows):
        chosen = order[start : start + rows]
        inputs = tokenizer([prompts[index] for index in chosen], return_tensors="pt", padding=True).to(device)
        inputs.pop("token_type_ids", None)
        with torch.inference_mode():
            outputs: Any = model.generate(**inputs, max_new_tokens=LONGEST_ANSWER)
        for index, output in zip(chosen, outputs[:, inputs["input_ids"].shape[1] :], strict=True):
            ended = tokenizer.eos_token_id in output.tolist()
            text = tokenizer.decode(output, skip_special_tokens=True)
            yield Answer(samples[index], text, grade(samples[index], text), ended)


def scores(given: Sequence[Answer]) -> list[Score]:
    """Scores by family, each over all difficulties first and then by difficulty, in the order of `FAMILIES`."""
    groups: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for answer in given:
        groups[answer.sample.family, 0].append(answer.right)
        groups[answer.sample.family, answer.sample.difficulty].append(answer.right)
    places = {family.name: place for place, family in enumerate(FAMILIES)}
    ordered = sorted(groups, key=lambda key: (places[key[0]], key[1]))
    return [Score(name, level, sum(groups[name, level]), len(groups[name, level])) for name, level in ordered]


def table(given: Sequence[Answer]) -> str:
    """The scores as a Markdown table: a row per family, a column per difficulty."""
    cells = {(score.family, score.difficulty): f"{100 * score.accuracy:.0f}" for score in scores(given)}
    counts = {score.family: score.count for score in scores(given) if score.difficulty == 0}
    lines = ["| family | samples | all | level 1 | level 2 | level 3 |", "|---|---:|---:|---:|---:|---:|"]
    for name, count in counts.items():
        values = " | ".join(cells.get((name, level), "-") for level in range(4))
        lines.append(f"| {name} | {count} | {values} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m headgate.engine.demo.evaluate", description="Accuracy by family.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="checkpoint folder")
    parser.add_argument("--samples", type=int, default=500, help="samples of the test split, over all families")
    parser.add_argument("--seed", type=int, default=0, help="seed of the samples")
    parser.add_argument("--device", default="cpu", help="torch device, such as cpu or cuda")
    parser.add_argument("--wrong", type=Path, help="write the wrong answers there, as JSON lines")
    options = parser.parse_args(arguments)
    if options.samples < 1:
        parser.error(f"--samples is {options.samples}; it must be at least 1")
    samples = list(generate(options.samples, seed=options.seed, split="test"))
    given = list(answers(options.folder, samples, device=options.device))
    print(table(given))
    ended = sum(answer.ended for answer in given)
    print(f"\nright: {sum(answer.right for answer in given)} of {len(given)}; ended by themselves: {ended}")
    if options.wrong is not None:
        with options.wrong.open("w", encoding="utf-8") as file:
            for answer in given:
                if not answer.right:
                    record = {
                        "family": answer.sample.family,
                        "difficulty": answer.sample.difficulty,
                        "messages": [[turn.role, turn.content] for turn in answer.sample.messages],
                        "expected": answer.sample.answer,
                        "given": answer.text,
                    }
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
