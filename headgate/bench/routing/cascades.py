"""What calibrated rules cost at the same loss: device seconds, and how long a client waits for the first token.

An estimate decides before anybody answers. A cascade knows more, the small model's answer, but holds it back until it
knows, and pays for both where it does not stand.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.engine.front.local import LocalModel
from headgate.engine.sampling.params import SamplingParams
from headgate.routing.calibration import Infeasible
from headgate.routing.cascade import HELD_TOKENS, Cascade
from headgate.routing.outcomes import OutcomeTable
from headgate.routing.quality import FittedQuality
from headgate.routing.regression import Array
from headgate.training.quality import alone_costs, design, sureness_of

LOSSES = (0.05, 0.10)
PROMPTS = 150
"""Prompts whose times are taken, one after the other."""


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """Seconds of lone requests, `[prompts]` each, and the places of their prompts in the table.

    `small`, `large`: until a model's first token; `held`: until the small model has said what a cascade looks at.
    """

    places: NDArray[np.int64]
    small: Array
    held: Array
    large: Array


@dataclass(frozen=True, slots=True)
class Cost:
    """One rule, calibrated to keep `loss`, on prompts that neither it nor its calibration knows.

    Attributes:
        rule: which.
        loss: that it is to keep; 0 for the large model alone.
        realised: loss on these prompts; may be above by chance, as often as stated.
        first: share of requests that the small model is asked first.
        small: share that it answers.
        seconds: device seconds, as a share of the large model's.
        quality: right answers, likewise.
        median_s: seconds until the first token, median of lone requests.
        p95_s: 95 % quantile of the same.
    """

    rule: str
    loss: float
    realised: float
    first: float
    small: float
    seconds: float
    quality: float
    median_s: float
    p95_s: float


def compare_costs(table: OutcomeTable, fitted: FittedQuality, waits: Waits) -> list[Cost]:
    """Always large, the estimate from the embedding, the cascade alone and after the estimate, at each loss.

    Args:
        table: on whose part `test` they are compared.
        fitted: with its calibrations.
        waits: of some of these prompts.
    """
    test = table.take(table.rows("test"))
    none, every = np.zeros(len(test), np.bool_), np.ones(len(test), np.bool_)
    found = [_cost("always large", 0.0, test, none, none, held=False, waits=waits)]
    read = design(test, "embedding")
    if read is None:
        return found
    pair, quantile = fitted.estimators["embedding"], Cascade().quantile
    told = read.estimates(pair)
    sure = sureness_of(test, quantile)
    # As the gateway does where a cascade keeps the loss: who is likely to be rejected is not asked.
    share = sum(one.small.device_s for one in test.outcomes) / sum(one.large.device_s for one in test.outcomes)
    for loss in LOSSES:
        try:
            threshold = fitted.threshold("embedding", loss=loss)
            likely, keeps = told > threshold, test.handed_over & (read.kept(pair) > threshold)
            stands = sure > fitted.cascade(quantile, loss=loss)
        except Infeasible:
            continue
        found.append(_cost("embedding", loss, test, likely, likely, held=False, waits=waits, keeps=keeps))
        found.append(_cost("cascade", loss, test, every, stands, held=True, waits=waits))
        tried = pair.small.predict(read.rows) > share
        found.append(_cost("cascade after the embedding", loss, test, tried, tried & stands, held=True, waits=waits))
    return found


def _cost(
    rule: str,
    loss: float,
    test: OutcomeTable,
    first: NDArray[np.bool_],
    stays: NDArray[np.bool_],
    *,
    held: bool,
    waits: Waits,
    keeps: NDArray[np.bool_] | None = None,
) -> Cost:
    small, large = test.given, test.right("large")
    small_s, large_s = (np.array([getattr(one, tier).device_s for one in test.outcomes]) for tier in ("small", "large"))
    answers = stays & ~test.handed_over
    if keeps is not None:
        small, small_s = np.where(keeps, test.alone, small), np.where(keeps, alone_costs(test, "embedding"), small_s)
        answers |= stays & keeps
    spent = np.where(first, small_s, 0.0) + np.where(answers, 0.0, large_s)
    asked, kept = first[waits.places], answers[waits.places]
    begun = np.where(asked, waits.held if held else waits.small, 0.0) + np.where(kept, 0.0, waits.large)
    return Cost(
        rule,
        loss,
        float((stays & (large > small)).sum() / max(1.0, large.sum())),
        float(first.mean()),
        float(answers.mean()),
        float(spent.mean() / large_s.mean()),
        float(np.where(stays, small, large).mean() / max(large.mean(), 1e-12)),
        float(np.median(begun)),
        float(np.quantile(begun, 0.95)),
    )


async def lone_waits(small: LocalModel, large: LocalModel, table: OutcomeTable, *, seed: int = 0) -> Waits:
    """Times of some prompts of the part `test`: single questions without a system text, both models idle before each.

    Each is a tenant of its own, so that nothing of its prompt is in the cache.
    """
    test = table.take(table.rows("test"))
    single = [at for at, one in enumerate(test.outcomes) if one.turns == 1 and not one.has_tools]
    places = np.sort(np.random.default_rng(seed).permutation(single)[:PROMPTS])
    rows = []
    for place in places:
        messages = [{"role": "user", "content": test.outcomes[place].text}]
        first, held = await _times(small, messages, f"wait-{place}", HELD_TOKENS)
        rows.append((first, held, (await _times(large, messages, f"wait-{place}", 1))[0]))
    return Waits(places, *np.array(rows).T)


async def _times(model: LocalModel, messages: Sequence[dict[str, str]], name: str, tokens: int) -> tuple[float, float]:
    """Seconds until the first token, and until so many or the last."""
    prompt = await model.render_chat(list(messages))
    started, times, seen = time.perf_counter(), list[float](), 0
    async for delta in model.generate(name, prompt, SamplingParams(temperature=0.0, max_tokens=tokens), tenant=name):
        seen += len(delta.token_ids)
        if seen or delta.finish is not None:
            times.append(time.perf_counter() - started)
    return times[0], times[-1]
