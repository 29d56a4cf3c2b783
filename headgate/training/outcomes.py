"""Makes outcome tables: both models answer prompts whose answers can be graded, and what the router sees is kept."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headgate.cache.embedding.encoder import BertEncoder
from headgate.cache.embedding.sentence_model import default_folder, identity
from headgate.engine.demo.tasks import BEYOND, Message, Sample, generate, grade
from headgate.engine.demo.tasks.draw import hashed
from headgate.engine.demo.tasks.grading import Grading
from headgate.engine.engine import Engine
from headgate.engine.front.judged import Probe, Score
from headgate.engine.front.local import LocalModel
from headgate.engine.models.generation import hand_over
from headgate.engine.models.identity import checkpoint_identity
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.engine.text.chat_template import TemplateError
from headgate.routing.cascade import HELD_TOKENS, QUANTILES, quantile_of
from headgate.routing.core import MOST_CORES, cores
from headgate.routing.outcomes import Attempt, Confidence, Outcome, OutcomeTable, Part
from headgate.routing.types import Vector
from headgate.training.evaluate import LONGEST_ANSWER, all_of, distinct
from headgate.training.turns import tool

_NO_ANSWER = -100.0
"""How sure a model is of an answer that it did not give: what looks at that does not let it stand."""
TURN = 256
"""Prompts that one model answers before it is the other's turn."""
_PARTS: tuple[Part, ...] = ("train", "train", "calibration", "test")
_EMBEDDED_AT_ONCE = 64

_REFERENCES: Mapping[Grading, str] = {
    "text": "any text",
    "number": "a text with a number",
    "json": "JSON",
    "call": "a <tool_call> block with JSON in it",
}

Told = Callable[[str], None]


class PromptError(ValueError):
    """Prompts that no table can be made of. The message names the file and the line."""


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    messages: list[Message]
    answer: str
    grading: Grading = "text"
    family: str = "prompts"
    level: int = 0
    tools: list[dict[str, Any]] = msgspec.field(default_factory=list)


def demo_prompts(count: int, *, seed: int, harder: float = 1.0) -> list[Sample]:
    """About `count` different prompts of the demo tasks, of the levels from 1 to `BEYOND`.

    For one of a level there are `harder` of the next: equally many at 1, and below it fewer that are hard.

    All are of the generator's test split, because the models know the others: wordings, words and combinations that
    training had. A router that learned from those would expect too much of both models.
    """
    weights = {level: harder ** (level - 1) for level in range(1, BEYOND + 1)}
    counts = {level: math.ceil(count * weight / sum(weights.values())) for level, weight in weights.items()}
    return distinct(
        [s for level, each in counts.items() for s in generate(each, seed=seed, split="test", difficulty=level)]
    )


def read_prompts(path: Path) -> list[Sample]:
    """Prompts from JSON lines `{"messages", "answer", "grading", "family", "level", "tools"}`, the last four optional.

    Raises:
        PromptError: the file cannot be read, or a line is not of this form.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise PromptError(f"{path}: {error.strerror or error}") from None
    samples = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            read = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError as error:
            raise PromptError(f"{path}:{number}: {error}") from None
        if not read.messages or read.messages[-1].role != "user":
            raise PromptError(f"{path}:{number}: messages end with no user text; one is needed")
        try:
            tools = tuple(tool(f"tools[{place}]", given) for place, given in enumerate(read.tools))
        except ValueError as error:
            raise PromptError(f"{path}:{number}: {error}") from None
        asked = json.dumps([[turn.role, turn.content] for turn in read.messages])
        sample = Sample(tuple(read.messages), read.answer, read.family, read.level, asked, "test", read.grading, tools)
        # Of a reference that is not right itself no answer could be.
        if not grade(sample, read.answer):
            wanted = _REFERENCES[read.grading]
            raise PromptError(
                f"{path}:{number}: answer is {read.answer!r} with grading {read.grading!r}; {wanted} is accepted"
            )
        samples.append(sample)
    if not samples:
        raise PromptError(f"{path} has no prompts; at least one line is needed")
    return distinct(samples)


def dealt(sample: Sample) -> Part:
    """What a prompt is used for: half of all contents are fitted on, a quarter each calibrated and tested on.

    By a hash of what is asked, whatever the wording: the same content never comes in two parts, and the parts differ by
    nothing but chance, which a threshold set on one and held to on another needs.
    """
    return _PARTS[hashed(f"route\0{sample.family}\0{sample.content}", len(_PARTS))]


def make_table(
    small: Path,
    large: Path,
    samples: Sequence[Sample],
    *,
    device: str = "auto",
    threads: int | None = None,
    tell: Told = lambda _: None,
) -> OutcomeTable:
    """Both checkpoints' greedy answers to the samples. Not to be called in an event loop.

    Without the package of the embedding model the table has no vectors.

    Raises:
        EngineError, TokenizerError: a checkpoint cannot be served.
        NoChatTemplate: it has no chat template.
        PromptError: its context length is too small for a sample, or its chat template refuses it.
    """
    folder = default_folder()
    encoder = None if folder is None else BertEncoder(folder)
    tell("embedding the prompts")
    vectors, ends = embedded_with_cores(encoder, [sample.prompt for sample in samples])
    engine = Engine(EngineSettings(device=device, threads=threads))
    engine.load(ModelSpec("small", small), ModelSpec("large", large))
    engine.start()
    try:
        outcomes, states = asyncio.run(ask_both(engine.models["small"], engine.models["large"], samples, tell=tell))
    finally:
        engine.stop()
    named = identity(str(folder)) if folder is not None else ""
    identities = checkpoint_identity(small), checkpoint_identity(large)
    return OutcomeTable(*identities, named, outcomes, states, vectors, ends, hand_over(small))


def embedded(encoder: BertEncoder, texts: Sequence[str]) -> Vector:
    """float32 `[texts, dim]`, of unit norm."""
    starts = range(0, len(texts), _EMBEDDED_AT_ONCE)
    rows = [one.vector for at in starts for one in encoder.encode(texts[at : at + _EMBEDDED_AT_ONCE])]
    return np.stack(rows).astype(np.float32) if rows else np.zeros((0, encoder.dim), np.float32)


def embedded_with_cores(encoder: BertEncoder | None, texts: Sequence[str]) -> tuple[Vector, Vector]:
    """Embeddings of texts and of their cores, as an outcome table has them; of dim 0 without an encoder."""
    if encoder is None:
        return np.zeros((len(texts), 0), np.float32), np.zeros((len(texts), MOST_CORES, 0), np.float32)
    own = [cores(text) for text in texts]
    flat = embedded(encoder, [core for each in own for core in each])
    padded = np.zeros((len(texts), MOST_CORES, encoder.dim), np.float32)
    places = [(row, at) for row, each in enumerate(own) for at in range(len(each))]
    if places:
        padded[tuple(zip(*places, strict=True))] = flat
    return embedded(encoder, texts), padded


async def ask_both(
    small: LocalModel, large: LocalModel, samples: Sequence[Sample], *, tell: Told = lambda _: None
) -> tuple[tuple[Outcome, ...], Vector]:
    """Outcomes in the order of the samples, and the small model's states `[samples, dim]`.

    The two models take turns, a few hundred prompts each, so that a slow minute of the machine falls on both. All
    requests of a turn are with the engine at once, and each is a tenant of its own: no prompt's seconds are fewer for
    what another one left in the prefix cache. A small model that was taught to hand over may, as where a router asks.

    Raises:
        PromptError: one of them does not take a sample. None is asked then, for their answers would be lost.
    """
    for sample in samples:
        await _check(sample, small, large)
    outcomes: list[Outcome] = []
    states: list[Vector] = []
    for start in range(0, len(samples), TURN):
        made = await _turn(small, large, samples[start : start + TURN], start)
        outcomes.extend(outcome for outcome, _ in made)
        states.extend(state for _, state in made)
        tell(f"asked {len(outcomes)} of {len(samples)} prompts")
    return tuple(outcomes), np.stack(states)


async def _check(sample: Sample, small: LocalModel, large: LocalModel) -> None:
    for model in (small, large):
        try:
            prompt = await model.render_chat(*sample.conversation)
        except TemplateError as error:
            raise PromptError(f"prompt {sample.prompt[:60]!r}: {error}") from None
        if len(prompt) >= model.info.context_length:
            raise PromptError(
                f"prompt {sample.prompt[:60]!r} has {len(prompt)} tokens; the {model.info.name} model takes at most "
                f"{model.info.context_length}, one of them new"
            )


async def _turn(
    small: LocalModel, large: LocalModel, samples: Sequence[Sample], start: int
) -> list[tuple[Outcome, Vector]]:
    names = [f"prompt-{start + place}" for place in range(len(samples))]
    prompts = [await small.render_chat(*sample.conversation) for sample in samples]
    plain = await all_of(_answer(small, p, f"{n}/plain") for n, p in zip(names, prompts, strict=True))
    probed = await all_of(_probed(small, p, n) for n, p in zip(names, prompts, strict=True))
    scores = await all_of(small.score(n, p, a.ids, tenant=n) for n, p, a in zip(names, prompts, plain, strict=True))
    left = [at for at, answer in enumerate(plain) if answer.hands_over]
    alone = await all_of(_answer(small, prompts[at], f"{names[at]}/own", alone=True) for at in left)
    own = dict(zip(left, alone, strict=True))
    prompts = [await large.render_chat(*sample.conversation) for sample in samples]
    better = await all_of(_answer(large, p, n) for n, p in zip(names, prompts, strict=True))
    return [
        (_outcome(sample, answer, probe, again.device_s, score, other, own.get(at)), probe.state)
        for at, (sample, answer, (probe, again), score, other) in enumerate(
            zip(samples, plain, probed, scores, better, strict=True)
        )
    ]


@dataclass(frozen=True, slots=True)
class _Answer:
    text: str
    ids: tuple[int, ...]
    device_s: float
    hands_over: bool

    def graded(self, sample: Sample) -> Attempt:
        return Attempt(not self.hands_over and grade(sample, self.text), len(self.ids), self.device_s)


def _outcome(
    sample: Sample,
    small: _Answer,
    probe: Probe,
    after_probe_s: float,
    score: Score,
    large: _Answer,
    own: _Answer | None,
) -> Outcome:
    chars = sum(len(turn.content) for turn in sample.messages) + sum(len(json.dumps(tool)) for tool in sample.tools)
    return Outcome(
        text=sample.prompt,
        system=next((turn.content for turn in sample.messages if turn.role == "system"), ""),
        turns=len(sample.messages),
        prompt_chars=chars,
        has_tools=bool(sample.tools),
        family=sample.family,
        level=sample.difficulty,
        part=dealt(sample),
        prompt_tokens=probe.finish.prompt_tokens,
        probe_s=probe.finish.device_s,
        after_probe_s=after_probe_s,
        small=small.graded(sample),
        large=large.graded(sample),
        confidence=confidence_of([_NO_ANSWER] if small.hands_over else [token.logprob for token in score.tokens]),
        own=None if own is None else own.graded(sample),
    )


def confidence_of(logprobs: Sequence[float]) -> Confidence:
    """How sure a model was of an answer with these natural-log probabilities of its tokens, at least one."""
    held = logprobs[:HELD_TOKENS]
    return Confidence(sum(held) / len(held), *(quantile_of(held, share) for share in QUANTILES))


async def _probed(model: LocalModel, prompt: tuple[int, ...], name: str) -> tuple[Probe, _Answer]:
    """One after the other, as in serving: then a step has prompts and answers in it, and costs what such steps cost."""
    probe = await model.probe(name, prompt, tenant=name)
    return probe, await _answer(model, prompt, name)


async def _answer(model: LocalModel, prompt: tuple[int, ...], name: str, *, alone: bool = False) -> _Answer:
    """`alone`: it may not hand over. Where it does it is ended there, as a gateway would."""
    phrase = "" if alone else model.info.hand_over
    suppressed = model.info.defaults.begin_suppress_tokens if alone else ()
    sampling = SamplingParams(temperature=0.0, max_tokens=LONGEST_ANSWER, begin_suppress_tokens=suppressed)
    text, ids, finish = "", list[int](), None
    stream, enough, hands_over = model.generate(name, prompt, sampling, tenant=name), None, False
    with suppress(StopAsyncIteration):
        while True:
            delta = await stream.asend(enough)
            text += delta.text
            ids.extend(delta.token_ids)
            finish = delta.finish or finish
            hands_over = bool(phrase) and text.startswith(phrase)
            enough = hands_over or None
    ended = ("cancelled", "stop", "length") if hands_over else ("stop", "length")
    if finish is None or finish.reason not in ended:
        reason = "nothing" if finish is None else finish.error or finish.reason
        raise RuntimeError(f"{model.info.name}: the engine ended {name} with {reason}")
    return _Answer(text, tuple(ids), finish.device_s, hands_over)
