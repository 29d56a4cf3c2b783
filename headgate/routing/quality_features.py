"""What can be counted of a request without any model: its size, its numbers, its lists, its form."""

from __future__ import annotations

import math
import re

import numpy as np

from headgate.routing.lexical import has_code
from headgate.routing.types import RouteFeatures, Vector

SURFACE = (
    "chars",
    "prompt_chars",
    "words",
    "word_length",
    "lines",
    "longest_line",
    "numbers",
    "digits",
    "longest_number",
    "list_items",
    "commas",
    "colons",
    "quotes",
    "brackets",
    "operators",
    "capitals",
    "question",
    "turns",
    "system",
    "tools",
    "code",
    "structured",
)
"""What `surface` gives, in this order."""

SURENESS = 4
"""Numbers that `sureness` gives."""

_FORECAST = 6
_LEAST = 1e-6
_MOST_CHARS = 8192
_NUMBER = re.compile(r"\d+")
_ITEM = re.compile(r"[,;|]\s*|(?<!\s)\s+-\s+")


def surface(features: RouteFeatures) -> Vector:
    """Float32 `[len(SURFACE)]`; counts as log(1 + count), of the first 8,192 characters of a long text."""
    text = features.text[:_MOST_CHARS]
    lines = text.splitlines() or [""]
    words = text.split()
    numbers = _NUMBER.findall(text)
    digits = sum(len(number) for number in numbers)
    counts = (
        len(features.text),
        features.prompt_chars or len(features.text),
        len(words),
        sum(len(word) for word in words) / max(1, len(words)),
        len(lines),
        max(len(line) for line in lines),
        len(numbers),
        digits,
        max((len(number) for number in numbers), default=0),
        max(len(_ITEM.findall(line)) for line in lines),
        text.count(","),
        text.count(":"),
        text.count('"') + text.count("'"),
        sum(text.count(mark) for mark in "()[]{}"),
        sum(text.count(mark) for mark in "+-*/=%"),
        sum(word[0].isupper() for word in words),
    )
    flags = (
        "?" in text,
        features.turns > 1,
        bool(features.system),
        features.has_tools,
        has_code(text),
        features.format != "text",
    )
    return np.array([*(math.log1p(count) for count in counts), *flags], np.float32)


def sureness(state: Vector) -> Vector:
    """What follows from the forecast that ends a state: float32 `[SURENESS]`, of `state` `[dim + 6]`.

    The forecast is five log-probabilities of the next token, falling, and its entropy. A regression adds up what it is
    given, so it is given the likeliest token's probability, the logarithm of all others', and its lead over the second
    and the fifth as well.
    """
    first, second, fifth = float(state[-_FORECAST]), float(state[-_FORECAST + 1]), float(state[-2])
    likeliest = math.exp(min(first, 0.0))
    return np.array([likeliest, math.log(max(1 - likeliest, _LEAST)), first - second, first - fifth], np.float32)
