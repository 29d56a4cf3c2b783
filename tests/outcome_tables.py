"""Outcome tables with a known law: what the tests of routing estimate, calibrate and measure on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headgate.routing.core import MOST_CORES
from headgate.routing.outcomes import Attempt, Confidence, Outcome, OutcomeTable, Part

_FAMILIES = ("sums", "lists", "facts")
_PARTS: tuple[Part, ...] = ("train", "train", "calibration", "test")


def made_table(count: int, *, seed: int, dim: int = 8, hidden: int = 9) -> OutcomeTable:
    """`count` prompts of three families whose difficulty the state tells well, the vector a little.

    The small model is right with probability 1 / (1 + exp(3 h)) at difficulty h, standard normal; the large one with
    1 / (1 + exp(3 h - 4)). A small answer costs 1 ms, a large one 3 ms, the prompt's pass 0.2 ms of the small one's.
    """
    drawn = np.random.default_rng(seed)
    difficulty = drawn.normal(size=count)
    states = drawn.normal(size=(count, hidden)).astype(np.float32)
    states[:, 0] = difficulty + 0.2 * states[:, 0]
    # Two numbers of the last token, two of all, and what is said of the next one.
    states = np.insert(states, 3, 0.0, axis=1)
    vectors = drawn.normal(size=(count, dim)).astype(np.float32)
    vectors[:, 0] = difficulty + vectors[:, 0]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    small = drawn.random(count) < 1 / (1 + np.exp(3 * difficulty))
    large = drawn.random(count) < 1 / (1 + np.exp(3 * difficulty - 4))
    outcomes = []
    for place in range(count):
        # Prompts get longer with their difficulty, on the whole.
        words = "word " * max(1, int(20 + 6 * difficulty[place] + 4 * drawn.normal()))
        logprob = -float(np.exp(difficulty[place] - 1 + 0.5 * drawn.normal()))
        outcomes.append(
            Outcome(
                text=f"{place} {words}".strip(),
                system="",
                turns=1,
                prompt_chars=len(words),
                has_tools=False,
                family=_FAMILIES[place % len(_FAMILIES)],
                level=1 + int(difficulty[place] > 0),
                part=_PARTS[int(drawn.integers(len(_PARTS)))],
                prompt_tokens=10 + place % 7,
                probe_s=0.0002,
                after_probe_s=0.0008,
                small=Attempt(bool(small[place]), 8, 0.001),
                large=Attempt(bool(large[place]), 8, 0.003),
                confidence=Confidence(logprob, 3 * logprob, 2.5 * logprob, 2 * logprob, 1.5 * logprob, logprob / 2),
            )
        )
    # A core lies near its text, with some noise.
    cores = vectors[:, None] + 0.1 * drawn.normal(size=(count, MOST_CORES, dim)).astype(np.float32)
    cores /= np.linalg.norm(cores, axis=2, keepdims=True)
    return OutcomeTable("small-1", "large-1", "embedder-1", tuple(outcomes), states, vectors, cores)


def handing_over(table: OutcomeTable) -> OutcomeTable:
    """The table of a small model that hands over what it would have wrong, and every tenth prompt besides."""
    outcomes = [
        one
        if one.small.right and place % 10
        else replace(one, small=replace(one.small, right=False, tokens=1), own=one.small, confidence=_NO_ANSWER)
        for place, one in enumerate(table.outcomes)
    ]
    return replace(table, outcomes=tuple(outcomes), hand_over="~")


_NO_ANSWER = Confidence(*(-100.0,) * 6)
