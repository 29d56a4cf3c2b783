"""The mixture: which families there are, and how their tasks become conversations."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from headgate.engine.demo.tasks.arithmetic import arithmetic
from headgate.engine.demo.tasks.chat import out_of_domain, small_talk
from headgate.engine.demo.tasks.classify import sentiment, topic
from headgate.engine.demo.tasks.extract import extraction, passage
from headgate.engine.demo.tasks.facts import facts
from headgate.engine.demo.tasks.rewrite import lists, repeating, rewriting
from headgate.engine.demo.tasks.sample import Draw, Family, Message, Sample, Split, Task, split_of
from headgate.engine.demo.tasks.words import FIRST_NAMES

FAMILIES: tuple[Family, ...] = (
    Family("sentiment", sentiment, weight=0.8),
    Family("topic", topic, weight=0.8),
    Family("extraction", extraction, weight=1.1, grading="json"),
    Family("repeating", repeating, weight=1.2),
    Family("rewriting", rewriting, weight=1.3),
    Family("lists", lists, weight=1.3),
    Family("arithmetic", arithmetic, weight=1.6),
    Family("passage", passage, weight=1.1),
    Family("facts", facts, weight=1.0),
    Family("small_talk", small_talk, levels=2, weight=0.5),
    Family("out_of_domain", out_of_domain, levels=1, weight=0.8),
)
"""Every family, in a fixed order. A new one is a function from a `Draw` to a `Task`, added here."""

SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a helpful assistant. Answer briefly.",
    "You are a concise assistant.",
    "Answer the user's question.",
    "You are the assistant of Headgate.",
    "Be polite and short.",
    "You are an expert.",
)

_RECALL = ("What is my name?", "Do you remember my name?", "Who am I?", "What did I say my name is?", "What's my name?")


def family(name: str) -> Family:
    """The family of that name. Raises `ValueError` naming those there are."""
    for known in FAMILIES:
        if known.name == name:
            return known
    raise ValueError(f"family {name!r} is unknown; known: {', '.join(known.name for known in FAMILIES)}")


def generate(
    count: int,
    *,
    seed: int,
    split: Split = "train",
    families: Sequence[Family] = FAMILIES,
    difficulty: int | None = None,
    system: float = 0.15,
    turns: float = 0.12,
) -> Iterator[Sample]:
    """`count` samples, the same for the same arguments on every machine.

    `families` are drawn by their weights. `difficulty` fixes the level (families with fewer levels give their hardest);
    otherwise easier levels come more often. `system` and `turns` are the shares of samples that open with a system
    prompt and that have earlier turns.
    """
    rng = random.Random(f"{seed}/{split}")
    weights = [known.weight for known in families]
    for _ in range(count):
        chosen = rng.choices(families, weights)[0]
        yield _sample(rng, chosen, difficulty, split, families, weights, system, turns)


def _sample(
    rng: random.Random,
    chosen: Family,
    difficulty: int | None,
    split: Split,
    families: Sequence[Family],
    weights: list[float],
    system: float,
    turns: float,
) -> Sample:
    level = min(difficulty, chosen.levels) if difficulty else _level(rng, chosen)
    task = draw_task(rng, chosen, level, split)
    messages: list[Message] = []
    if rng.random() < system:
        messages.append(Message("system", rng.choice(SYSTEM_PROMPTS)))
    if rng.random() < turns:
        for _ in range(rng.choice((1, 1, 2, 3))):
            other = rng.choices(families, weights)[0]
            # Earlier turns come from the same split: a test task must not reach training as context.
            earlier = draw_task(rng, other, _level(rng, other), split)
            messages += [Message("user", earlier.prompt), Message("assistant", earlier.answer)]
        if chosen.name == "small_talk" and level == 2:
            return _recall(rng, messages, split)
    messages.append(Message("user", task.prompt))
    return Sample(tuple(messages), task.answer, chosen.name, level, task.content, chosen.grading)


def _recall(rng: random.Random, messages: list[Message], split: Split) -> Sample:
    """A conversation in which the user gave a name before and now asks for it."""
    while True:
        first = rng.choice(FIRST_NAMES)
        question = rng.choice(_RECALL)
        content = f"recall|{first}|{question}"
        if split_of("small_talk", content) == split:
            break
    introduction = [Message("user", f"My name is {first}."), Message("assistant", f"Nice to meet you, {first}!")]
    start = 1 if messages and messages[0].role == "system" else 0
    turns = [*messages[:start], *introduction, *messages[start:], Message("user", question)]
    return Sample(tuple(turns), f"Your name is {first}.", "small_talk", 2, content)


def draw_task(rng: random.Random, chosen: Family, level: int, split: Split) -> Task:
    """One task of the family whose content belongs to the split."""
    while True:
        task = chosen.make(Draw(rng, level, split))
        if split_of(chosen.name, task.content) == split:
            return task


def _level(rng: random.Random, chosen: Family) -> int:
    return rng.choices(range(1, chosen.levels + 1), (5, 3, 2)[: chosen.levels])[0]
