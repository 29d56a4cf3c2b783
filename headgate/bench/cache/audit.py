"""How often the labels of the cache's audits are wrong, on questions whose answers are known by construction.

From the demo tasks come a question, the same question in other words and a close one with another answer. The model
answers the first; its answer plays the cached one, and is labelled as if it had been served to the other two.

Only cached answers count that are right for their own question: then they are right for the other wording and wrong for
the close question, for certain. A cached answer that was wrong from the start is no fault of the cache's.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import msgspec

from headgate.bench.engine.speed import started
from headgate.cache.audits.canonical import same_answer
from headgate.cache.audits.labels import KINDS, Calibration, LabelKind, Rate, by_likelihood, label
from headgate.engine.demo.tasks import Sample, grade, variants
from headgate.engine.demo.tasks.draw import Split
from headgate.engine.front.local import LocalModel
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.training.binomial import upper_bound

_LONGEST_ANSWER = 192
_CONCURRENCY = 16
_ALPHA = 0.05
_ANYTHING = -1e9
_MOST_WRONG = 0.01
"""Share of either kind of pair that likelihood may get wrong on the calibration split."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A cached answer and a question it is served to.

    Attributes:
        family: of the two questions.
        same: whether the question has the answer of the one that the cached answer was given to.
        cached_right: whether the cached answer is right for its own question.
        identical: the model writes the cached answer's tokens for this question too.
        cached, generated: the two answers.
        mean_logprob: of a token of the cached answer after this question.
        score_s: device seconds of the one pass that says whether it is identical, and how likely it is.
        generate_s: device seconds of generating the answer.
    """

    family: str
    question: str
    same: bool
    cached_right: bool
    identical: bool
    cached: str
    generated: str
    mean_logprob: float
    score_s: float
    generate_s: float

    @property
    def form_says(self) -> bool | None:
        """Whether the cached answer is the model's, to the token or in canonical form; None where neither tells."""
        return True if self.identical else same_answer(self.cached, self.generated, question=self.question)

    def labelled(self, kind: LabelKind | None, calibration: Calibration) -> bool | None:
        """What one labeller says by itself, or all of them in their order: right, wrong or nothing."""
        match kind:
            case "identical":
                return True if self.identical else None
            case "canonical":
                return same_answer(self.cached, self.generated, question=self.question)
            case "likelihood":
                return by_likelihood(calibration, self.mean_logprob)
            case None:
                given = label(
                    calibration,
                    identical=self.identical,
                    cached=self.cached,
                    generated=self.generated,
                    question=self.question,
                    mean_logprob=self.mean_logprob,
                )
                return given.right if given is not None else None


@dataclass(frozen=True, slots=True)
class AuditFigures:
    """The pairs of both splits and what they say."""

    calibration: Calibration
    calibrating: Sequence[Pair]
    tested: Sequence[Pair]


def measure(
    folder: Path,
    name: str,
    *,
    count: int,
    seed: int,
    threads: int | None,
    command: str,
    progress: Callable[[str], None],
) -> AuditFigures:
    """Labels `count` triples of the calibration split and of the test split; `progress` hears what is done next.

    Where the likelihood label decides is chosen on the calibration split, every rate is measured on the test split.

    Raises:
        CheckpointError, TokenizerError: the folder cannot be served.
        PromptTooLong, NoChatTemplate, TemplateError: the model cannot be asked.
    """
    splits: dict[Split, list[Pair]] = {}
    with started(EngineSettings(threads=threads), ModelSpec(name, folder)) as engine:
        for split in ("calibration", "test"):
            progress(f"labelling the {split} split")
            splits[split] = asyncio.run(_pairs(engine.models[name], count, seed, split))
    calibrating, tested = splits["calibration"], splits["test"]
    return AuditFigures(_calibrate(calibrating, tested, name, command), calibrating, tested)


def thresholds(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Mean log-probability from which likelihood says right, and that below which it says wrong.

    Each is the boldest at which at most 1 % of the pairs are called what they are not on account of it: pairs with
    different answers right where form does not tell, pairs with one answer wrong where form does not say the same.
    """
    different, one = ([p for p in pairs if p.cached_right and p.same == same] for same in (False, True))
    if not different or not one:
        raise ValueError("the pairs are all of one kind; some with one answer and some with different ones are needed")
    accepted = sorted((p.mean_logprob for p in different if p.form_says is None), reverse=True)
    rejected = sorted(p.mean_logprob for p in one if not p.form_says)
    spare = int(_MOST_WRONG * len(different)), int(_MOST_WRONG * len(one))
    # Just above the first that must not be called right; nothing is above 0.
    right_from = math.nextafter(accepted[spare[0]], 1.0) if len(accepted) > spare[0] else _ANYTHING
    wrong_below = rejected[spare[1]] if len(rejected) > spare[1] else 0.0
    return min(right_from, 0.0), min(wrong_below, right_from, 0.0)


def rates(pairs: Sequence[Pair], calibration: Calibration, *, same: bool) -> dict[str, Rate]:
    """By labeller and for `any`: how many pairs with one answer it calls wrong, or with different answers right."""
    chosen = [pair for pair in pairs if pair.cached_right and pair.same == same]
    counted: dict[str, Rate] = {}
    for kind in (*KINDS, None):
        errors = sum(pair.labelled(kind, calibration) is (not same) for pair in chosen)
        counted[kind or "any"] = Rate(errors, len(chosen), upper_bound(errors, len(chosen), _ALPHA))
    return counted


def _calibrate(calibrating: Sequence[Pair], tested: Sequence[Pair], name: str, command: str) -> Calibration:
    right_from, wrong_below = thresholds(calibrating)
    unknown = {kind: Rate(0, 0, 1.0) for kind in (*KINDS, "any")}
    bare = Calibration(1, name, date.today().isoformat(), command, right_from, wrong_below, unknown, unknown)
    accept, reject = (rates(tested, bare, same=same) for same in (False, True))
    return msgspec.structs.replace(bare, false_accept=accept, false_reject=reject)


async def _pairs(model: LocalModel, count: int, seed: int, split: Split) -> list[Pair]:
    """Two pairs of every triple, in the order of the triples."""
    found: list[list[Pair]] = [[] for _ in range(count)]
    remaining = iter(enumerate(variants(count, seed=seed, split=split)))

    async def work() -> None:
        for place, triple in remaining:
            asked = _Asked(model, f"{split}-{place}")
            cached = await asked.generate(triple.original)
            for sample, same in ((triple.paraphrase, True), (triple.near_miss, False)):
                found[place].append(await asked.pair(triple.original, cached, sample, same=same))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(_CONCURRENCY):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [pair for pairs in found for pair in pairs]


@dataclass(frozen=True, slots=True)
class _Said:
    text: str
    tokens: tuple[int, ...]
    device_s: float


@dataclass(frozen=True, slots=True)
class _Asked:
    """A model, asked about one triple."""

    model: LocalModel
    id: str

    async def generate(self, sample: Sample) -> _Said:
        prompt = await self.model.render_chat(*sample.conversation)
        suppressed = self.model.info.defaults.begin_suppress_tokens
        sampling = SamplingParams(temperature=0.0, max_tokens=_LONGEST_ANSWER, begin_suppress_tokens=suppressed)
        text, device_s = "", 0.0
        tokens: list[int] = []
        async for delta in self.model.generate(self.id, prompt, sampling):
            text += delta.text
            tokens.extend(delta.token_ids)
            device_s = delta.finish.device_s if delta.finish is not None else device_s
        return _Said(text, tuple(tokens), device_s)

    async def pair(self, original: Sample, cached: _Said, sample: Sample, *, same: bool) -> Pair:
        score = await self.model.score(self.id, await self.model.render_chat(*sample.conversation), cached.tokens)
        generated = await self.generate(sample)
        return Pair(
            sample.family,
            sample.prompt,
            same,
            grade(original, cached.text),
            score.greedy,
            cached.text,
            generated.text,
            score.mean,
            score.finish.device_s,
            generated.device_s,
        )
