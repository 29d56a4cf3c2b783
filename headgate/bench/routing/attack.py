"""An attack on the router: one prefix, found by greedy search, that sends other people's requests to the large model.

The attacker may ask the router for its estimates as often as he likes, and puts the words he finds before requests he
has never seen (Shafran et al. 2025, "Rerouting LLM routers"). The defence scores a request whole and in its cores, ends
of it that a prefix is not in, and believes the highest estimate of the small model: a prefix cannot lower that further
than leaving it out does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headgate.bench.routing.curves import Policy, curve, gap_closed, oracle
from headgate.bench.routing.policies import measured
from headgate.cache.embedding.encoder import BertEncoder
from headgate.routing.core import cores
from headgate.routing.outcomes import OutcomeTable
from headgate.routing.quality import Estimator, Source, readings
from headgate.routing.regression import Array
from headgate.routing.types import RouteFeatures, Vector

WORDS = (
    "prove", "theorem", "integral", "derive", "eigenvalue", "optimize", "algorithm", "recursive", "compile", "refactor",
    "multi-step", "plan", "itinerary", "budget", "legal", "diagnose", "synthesize", "compare", "critique", "essay",
    "translate", "Sanskrit", "quantum", "entropy", "combinatorics", "modulo", "primes", "sort", "reverse", "table",
    "list", "17", "394", "2048", "3.14159", "x=", "{", "[", "\"", "\n", "1,2,3,4,5,6,7,8", "a;b;c;d", "zqxv", "wklpt",
    "however", "therefore", "unless", "exactly", "carefully", "step", "before", "not", "every", "none", "difficult",
    "expert", "rigorous", "edge cases", "constraints", "dependencies",
)  # fmt: skip
"""What a prefix is made of: words of hard tasks, numbers, marks and nonsense."""
STEPS = 5
_SEEN = 12

Estimate = Callable[[Sequence[str]], Array]
"""How likely the small model is enough for texts, each asked alone, `[texts]`."""


@dataclass(frozen=True, slots=True)
class Attacked:
    """What the prefix that was found does to requests the search never saw; shares of requests that are upgraded.

    Attributes:
        source: of the estimates.
        threshold: below which a request is upgraded.
        prefix: found against the router as it is.
        clean: without a prefix.
        attacked: with it.
        clean_defended: without a prefix, by the defended router, whose threshold upgrades as many clean requests.
        attacked_defended: with a prefix that was sought against the defended router.
        defended_prefix: that one.
        gap_closed: share of the random-to-oracle gap that the router closes on these requests.
        gap_closed_defended: that the defended one does: what the defence costs.
    """

    source: Source
    threshold: float
    prefix: str
    clean: float
    attacked: float
    clean_defended: float
    attacked_defended: float
    defended_prefix: str
    gap_closed: float
    gap_closed_defended: float


def texts_only(
    estimator: Estimator, source: Source, vectors: Callable[[Sequence[str]], Vector], states: Callable[..., Vector]
) -> Estimate:
    """Estimates of texts from the models that read them.

    Args:
        estimator: the regressions.
        source: what they read.
        vectors: embeddings of texts, float32 `[texts, dim]`.
        states: the small model's states at their ends, float32 `[texts, dim]`.
    """

    def estimate(texts: Sequence[str]) -> Array:
        read = vectors(texts) if source == "embedding" else states(texts)
        field = "vector" if source == "embedding" else "state"
        asked = [
            replace(RouteFeatures(text, prompt_chars=len(text)), **{field: row})
            for text, row in zip(texts, read, strict=True)
        ]
        rows = [found for features in asked if (found := readings(features, source)) is not None]
        return estimator.enough(np.concatenate(rows))

    return estimate


def defended(estimate: Estimate) -> Estimate:
    """The highest estimate of the whole text and of its cores: the lowest of the escalations."""

    def highest(texts: Sequence[str]) -> Array:
        ends = [(text, *cores(text)) for text in texts]
        found = estimate([one for each in ends for one in each])
        starts = np.cumsum([0, *(len(each) for each in ends[:-1])])
        made: Array = np.maximum.reduceat(found, starts)
        return made

    return highest


@dataclass(frozen=True, slots=True)
class EmbeddingSeconds:
    """Median seconds of a pass over a text, and of one over the cores of a text that has some."""

    text: float
    cores: float


def embedding_seconds(encoder: BertEncoder, texts: Sequence[str], *, most: int = 300) -> EmbeddingSeconds:
    """Of the first `most` texts, one after the other."""
    spent: tuple[list[float], list[float]] = ([], [])
    for text in texts[:most]:
        for place, batch in enumerate(([text], list(cores(text)))):
            if batch:
                started = time.perf_counter()
                encoder.encode(batch)
                spent[place].append(time.perf_counter() - started)
    return EmbeddingSeconds(*(float(np.median(seconds)) for seconds in spent))


def search(estimate: Estimate, texts: Sequence[str], *, words: Sequence[str] = WORDS, steps: int = STEPS) -> str:
    """The prefix of up to `steps` words that lowers the mean estimate of `texts` most, a word at a time.

    Each word is tried in front of and behind what there is; the search ends where none helps.
    """
    prefix, least = "", float(_mean_log_odds(estimate(texts)))
    for _ in range(steps):
        tried = list(dict.fromkeys(made for word in words for made in (f"{prefix}{word} ", f"{word} {prefix}")))
        flat = estimate([made + text for made in tried for text in texts]).reshape(len(tried), len(texts))
        scores = _mean_log_odds(flat)
        best = int(np.argmin(scores))
        if scores[best] >= least:
            break
        prefix, least = tried[best], float(scores[best])
    return prefix


def attack(
    table: OutcomeTable, source: Source, estimate: Estimate, guarded: Estimate, *, share: float = 0.3, seed: int = 0
) -> Attacked:
    """Search on prompts of the part `calibration`, and count upgrades among those of `test`.

    Args:
        table: where the prompts are from; single questions without a system text are taken.
        source: of the estimates.
        estimate: of texts.
        guarded: of texts and their cores.
        share: of clean requests that the threshold upgrades.
        seed: of the choice of prompts.
    """
    drawn = np.random.default_rng(seed)
    single = [place for place, one in enumerate(table.outcomes) if one.turns == 1 and not one.has_tools]
    held = [table.outcomes[place].text for place in single if table.outcomes[place].part == "calibration"]
    seen = [held[at] for at in drawn.permutation(len(held))[:_SEEN]]
    tested = table.take([place for place in single if table.outcomes[place].part == "test"])
    texts = [one.text for one in tested.outcomes]
    both = measured(tested)
    once = np.ones((1, len(texts)))
    best = curve(both, oracle(both), once)
    rates: list[float] = []
    prefixes: list[str] = []
    bars: list[float] = []
    closed: list[float] = []
    for scored in (estimate, guarded):
        clean = scored(texts)
        made = curve(both, Policy("", 1 - clean, both.small_s, both.large_s), once, seed=seed)
        closed.append(float(gap_closed(made, best, both, once)[0]))
        bars.append(float(np.quantile(clean, share)))
        prefixes.append(search(scored, seen))
        hit = scored([prefixes[-1] + text for text in texts])
        rates += [float((clean <= bars[-1]).mean()), float((hit <= bars[-1]).mean())]
    return Attacked(source, bars[0], prefixes[0], rates[0], rates[1], rates[2], rates[3], prefixes[1], *closed)


def _mean_log_odds(estimates: Array) -> Array:
    clipped = np.clip(estimates, 1e-6, 1 - 1e-6)
    mean: Array = np.log(clipped / (1 - clipped)).mean(-1)
    return mean
