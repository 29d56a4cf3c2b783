"""The mixture: which families there are, and how their tasks become conversations."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from headgate.engine.demo.tasks.arithmetic import arithmetic
from headgate.engine.demo.tasks.calls import calls
from headgate.engine.demo.tasks.chat import out_of_domain, small_talk
from headgate.engine.demo.tasks.classify import sentiment, topic
from headgate.engine.demo.tasks.conversion import conversion
from headgate.engine.demo.tasks.draw import (
    BEYOND,
    PLAIN,
    Draw,
    Split,
    Variety,
    check_level,
    held,
    held_templates,
    split_of,
)
from headgate.engine.demo.tasks.extract import extraction
from headgate.engine.demo.tasks.facts import facts
from headgate.engine.demo.tasks.headline import headline
from headgate.engine.demo.tasks.intent import intent
from headgate.engine.demo.tasks.lists import lists
from headgate.engine.demo.tasks.passage import passage
from headgate.engine.demo.tasks.puzzles import puzzles
from headgate.engine.demo.tasks.rewrite import repeating, rewriting
from headgate.engine.demo.tasks.sample import Family, Message, Sample, Task
from headgate.engine.demo.tasks.strings import strings
from headgate.engine.demo.tasks.tables import tables
from headgate.engine.demo.tasks.words import FIRST_NAMES

FAMILIES: tuple[Family, ...] = (
    Family("sentiment", sentiment, weight=0.5),
    Family("topic", topic, weight=0.5),
    Family("intent", intent, weight=0.7),
    Family("extraction", extraction, weight=1.2, grading="json"),
    Family("passage", passage, weight=1.4),
    Family("tables", tables, weight=1.4),
    Family("headline", headline, weight=1.0),
    Family("lists", lists, weight=1.6),
    Family("repeating", repeating, weight=1.2),
    Family("rewriting", rewriting, weight=1.3),
    Family("strings", strings, weight=1.6),
    Family("arithmetic", arithmetic, weight=1.7, grading="number"),
    Family("conversion", conversion, weight=1.2),
    Family("puzzles", puzzles, weight=1.4),
    Family("calls", calls, weight=1.2, grading="call"),
    Family("facts", facts, weight=0.9, beyond=False),
    Family("small_talk", small_talk, levels=2, weight=0.4, beyond=False),
    Family("out_of_domain", out_of_domain, levels=1, weight=0.5, beyond=False),
)
"""Every family, in a fixed order. A new one is a function from a `Draw` to a `Task`, added here.

Facts, small talk and what is out of domain are closed lists, known by heart: they have no level beyond training.
"""

SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a helpful assistant. Answer briefly.",
    "You are a concise assistant.",
    "Answer the user's question.",
    "You are the assistant of Headgate.",
    "Be polite and short.",
    "You are an expert.",
    "You are a polite assistant.",
)

_TRIES = 1000

_RECALL = (
    "What is my name?",
    "Do you remember my name?",
    "What did I say my name is?",
    "What's my name?",
    "Tell me my name.",
    "Which name did I tell you?",
    "Please tell me my name.",
    "Do you know my name?",
)


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
    turns: float = 0.1,
    further: int = 0,
    variety: Variety = PLAIN,
) -> Iterator[Sample]:
    """`count` samples, the same for the same arguments on every machine.

    `families` are drawn by their weights, levels uniformly unless `difficulty` fixes one (families with fewer levels
    give their hardest). `system` and `turns` are the shares of samples that open with a system prompt and that have
    earlier turns. What can be asked about again, a text or a table, is, up to `further` times, in turns that follow.
    `variety`: what tasks may say beside their own words.
    Raises `ValueError` for an unknown split, and for a level that the split does not have: `BEYOND` is the test
    split's alone, and there too it comes only where it is asked for.
    """
    if split not in ("train", "calibration", "test"):
        raise ValueError(f"split {split!r} is unknown; known: train, calibration, test")
    if difficulty is not None:
        check_level(difficulty, split)
    mixture = _Mixture(random.Random(f"{seed}/{split}"), split, families, variety)
    for _ in range(count):
        yield mixture.sample(difficulty, system, turns, further)


def each_cell(count: int, *, seed: int, split: Split, families: Sequence[Family] = FAMILIES) -> list[Sample]:
    """`count` single-turn samples, without system prompt, of every family and level: what an evaluation asks.

    Of the levels that training has, too; `each_beyond` gives the other.
    """
    cells = [(known, level) for known in families for level in range(1, known.levels + 1)]
    return [sample for known, level in cells for sample in _cell(count, seed, split, known, level)]


def each_beyond(count: int, *, seed: int, families: Sequence[Family] = FAMILIES) -> list[Sample]:
    """`count` samples of the test split as `each_cell`'s, of the level `BEYOND` of every family that has it."""
    return [sample for known in families if known.beyond for sample in _cell(count, seed, "test", known, BEYOND)]


def _cell(count: int, seed: int, split: Split, known: Family, level: int) -> list[Sample]:
    mixture = _Mixture(random.Random(f"{seed}/{known.name}/{level}"), split, (known,))
    return [mixture.sample(level, 0.0, 0.0, 0) for _ in range(count)]


def draw_task(rng: random.Random, chosen: Family, level: int, split: Split, variety: Variety = PLAIN) -> Task:
    """One task of the family whose content belongs to the split.

    Closed lists may have no such content for the small splits. Their wordings are held out all the same, so there any
    content will do after some tries.
    """
    return _drawn(rng, chosen, level, split, variety)[0]


def _drawn(rng: random.Random, chosen: Family, level: int, split: Split, variety: Variety = PLAIN) -> tuple[Task, Draw]:
    """A task as `draw_task` gives it, with the draw that made it."""
    tries = 0
    while True:
        draw = Draw(rng, rng, level, split, variety=variety)
        task = chosen.make(draw)
        tries += 1
        if split_of(chosen.name, task.content) == split or (split != "train" and tries == _TRIES):
            return task, draw


def _asked_next(
    rng: random.Random, chosen: Family, first: Task, draw: Draw, count: int, variety: Variety
) -> list[Task]:
    """Up to `count` other questions about what `first` asks about, each of the split and none of them twice."""
    tasks = {first.content: first}
    for _ in range(2 * count):
        task = chosen.make(Draw(rng, rng, draw.level, draw.split, draw.made[: draw.given], variety))
        if len(tasks) <= count and split_of(chosen.name, task.content) == draw.split:
            tasks.setdefault(task.content, task)
    return list(tasks.values())[1:]


class _Mixture:
    """Draws conversations of a split."""

    def __init__(self, rng: random.Random, split: Split, families: Sequence[Family], variety: Variety = PLAIN) -> None:
        self._rng, self._split, self._families, self._variety = rng, split, families, variety
        self._weights = [known.weight for known in families]

    def sample(self, difficulty: int | None, system: float, turns: float, further: int) -> Sample:
        rng = self._rng
        chosen = rng.choices(self._families, self._weights)[0]
        level = min(difficulty or rng.randint(1, chosen.levels), chosen.hardest)
        messages: list[Message] = []
        if rng.random() < system:
            messages.append(Message("system", rng.choice(SYSTEM_PROMPTS)))
        if rng.random() < turns:
            # Earlier turns come from the same split: a test task must not reach training as context. They are easy
            # ones, and have no tools, since tools belong to the whole conversation.
            others = [known for known in self._families if known.grading != "call"]
            for _ in range(rng.choice((1, 1, 2, 3)) if others else 0):
                earlier = draw_task(rng, rng.choice(others), 1, self._split, self._variety)
                messages += [Message("user", earlier.prompt), Message("assistant", earlier.written)]
            if chosen.name == "small_talk" and level == 2:
                return self._recall(messages)
        task, draw = _drawn(rng, chosen, level, self._split, self._variety)
        messages.append(Message("user", task.prompt))
        if further and draw.given is not None:
            for following in _asked_next(rng, chosen, task, draw, further, self._variety):
                messages += [Message("assistant", task.written), Message("user", following.question)]
                task = following
        return Sample(
            messages=tuple(messages),
            answer=task.answer,
            family=chosen.name,
            difficulty=level,
            content=task.content,
            split=self._split,
            grading=chosen.grading,
            tools=task.tools,
            working=task.working,
        )

    def _recall(self, messages: list[Message]) -> Sample:
        """A conversation in which the user gave a name before and now asks for it."""
        first = self._rng.choice(held(FIRST_NAMES, self._split))
        question = self._rng.choice(held_templates(_RECALL, self._split))
        introduction = [Message("user", f"My name is {first}."), Message("assistant", f"Nice to meet you, {first}!")]
        start = 1 if messages and messages[0].role == "system" else 0
        turns = [*messages[:start], *introduction, *messages[start:], Message("user", question)]
        content = f"recall|{first}|{question}"
        return Sample(tuple(turns), f"Your name is {first}.", "small_talk", 2, content, self._split)
