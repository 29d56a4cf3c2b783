"""Paraphrases and near misses by construction, for the measurements of caches.

A paraphrase replays a task's content choices with other wording: the answer must be the same. A near miss replays them
with one choice changed and the same wording: the text is close, the answer differs.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headgate.engine.demo.tasks.draw import Draw, Split, check_level, split_of
from headgate.engine.demo.tasks.generator import FAMILIES
from headgate.engine.demo.tasks.sample import Family, Message, Sample, Task

_TRIES = 60
_CLOSE = 0.75
"""Least share of common characters (`difflib` ratio) between a task and its near miss."""


@dataclass(frozen=True, slots=True)
class Variants:
    """A sample, the same question in other words, and a question that only looks the same."""

    original: Sample
    paraphrase: Sample
    near_miss: Sample


def variants(
    count: int, *, seed: int, split: Split = "test", families: Sequence[Family] = FAMILIES, level: int | None = None
) -> Iterator[Variants]:
    """`count` triples, the same for the same arguments. Levels are uniform unless `level` fixes one.

    Families that answer everything alike (`out_of_domain`) or by a closed list of wordings have no near misses and are
    passed over. Raises `ValueError` if none of `families` can give a triple, and for a level that the split does not
    have.
    """
    if level is not None:
        check_level(level, split)
    rng = random.Random(f"{seed}/{split}/variants")
    made = misses = 0
    while made < count:
        chosen = rng.choice(families)
        triple = _triple(rng, chosen, min(level or rng.randint(1, chosen.levels), chosen.hardest), split)
        if triple is not None:
            made, misses = made + 1, 0
            yield triple
        elif (misses := misses + 1) > 50 * len(families):
            names = ", ".join(known.name for known in families)
            raise ValueError(f"families {names} gave no variants in {misses} tries; name one with several wordings")


def _triple(rng: random.Random, chosen: Family, level: int, split: Split) -> Variants | None:
    words = rng.randrange(1 << 30)
    draw = Draw(rng, random.Random(words), level, split)
    task = chosen.make(draw)
    if split_of(chosen.name, task.content) != split:
        return None
    script = tuple(draw.made)
    other = _paraphrase(rng, chosen, level, split, script, task)
    miss = _near_miss(rng, chosen, level, split, script, words, task)
    if other is None or miss is None:
        return None
    return Variants(*(_sample(made, chosen, level, split) for made in (task, other, miss)))


def _paraphrase(
    rng: random.Random, chosen: Family, level: int, split: Split, script: tuple[int, ...], task: Task
) -> Task | None:
    for _ in range(_TRIES):
        other = chosen.make(Draw(rng, random.Random(rng.randrange(1 << 30)), level, split, script))
        # Closed lists have the wording in their content; there the same answer is all that can be asked.
        if other.prompt.lower() != task.prompt.lower() and other.answer == task.answer and other.tools == task.tools:
            return other
    return None


def _near_miss(
    rng: random.Random, chosen: Family, level: int, split: Split, script: tuple[int, ...], words: int, task: Task
) -> Task | None:
    for _ in range(_TRIES):
        changed = list(script)
        changed[rng.randrange(len(script))] = rng.randrange(1 << 16)
        miss = chosen.make(Draw(rng, random.Random(words), level, split, changed))
        if miss.answer == task.answer or miss.prompt == task.prompt or miss.tools != task.tools:
            continue
        if split_of(chosen.name, miss.content) != split:
            continue
        if difflib.SequenceMatcher(None, task.prompt, miss.prompt, autojunk=False).ratio() >= _CLOSE:
            return miss
    return None


def _sample(task: Task, chosen: Family, level: int, split: Split) -> Sample:
    message = Message("user", task.prompt)
    return Sample(
        (message,), task.answer, chosen.name, level, task.content, split, chosen.grading, task.tools, task.working
    )
