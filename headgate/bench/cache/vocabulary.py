"""The vocabularies that several intents share, by name: those of words from their file, and numbers, amounts, dates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from headgate.bench.cache.slots import (
    Vocabulary,
    clock_times,
    counts,
    dates,
    days_of_year,
    identifiers,
    money,
    percentages,
    quantities,
    temperatures,
    vocabulary,
)

_WORDS = yaml.load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
_SHARED = (
    *(vocabulary(name, told) for name, told in _WORDS.items()),
    dates("dates", 2027),
    days_of_year("days of the year"),
    clock_times("clock times"),
    identifiers("orders", 240, 5),
    counts("small counts", "number", range(2, 21)),
    counts("people fed", "number", [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 24]),
    counts("long counts", "number", [*range(5, 20), *range(20, 100, 5)]),
    counts("ages", "number", range(12, 76)),
    counts("years", "number", range(1960, 2020)),
    counts("text lengths", "length", [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 18, 20, 25, 30, 40, 50]),
    quantities(
        "short times",
        {"minute": [5, 10, 15, 20, 25, 30, 40, 45, 50, 60, 75, 90, 120, 150, 180], "hour": [*range(1, 11)]},
    ),
    quantities(
        "long times",
        {
            "day": [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 20, 21, 28, 30, 45, 60, 90],
            "week": [*range(1, 13)],
            "month": [*range(1, 13)],
        },
    ),
    quantities("terms", {"month": [3, 6, 9, 12, 15, 18, 24, 30, 36, 48, 60], "year": [*range(1, 21), 25, 30]}),
    quantities("screen times", {"second": [10, 15, 20, 30, 45, 60, 90], "minute": [1, 2, 3, 4, 5, 10, 15, 20, 30, 45]}),
    quantities(
        "metric lengths",
        {
            "cm": [15, 20, 40, 60, 75, 80, 120, 150, 180],
            "m": [2, 3, 5, 8, 12, 15, 20, 40, 60, 100, 400],
            "km": [2, 3, 5, 8, 12, 15, 20, 40, 60, 75, 120],
        },
    ),
    quantities(
        "metric weights",
        {
            "g": [50, 75, 100, 125, 150, 200, 250, 300, 350, 400, 500, 600, 750, 1500],
            "kg": [1, 2, 3, 4, 5, 6, 8, 10, 12, 75, 100],
        },
    ),
    quantities("baggage", {"kg": [*range(5, 33)], "pound": [*range(10, 61, 2)]}),
    quantities(
        "volumes",
        {
            "ml": [100, 125, 150, 200, 250, 300, 400, 500, 600, 750, 1500],
            "litre": [1, 2, 3, 4, 5, 6, 8],
            "cup": [1, 2, 3, 4, 5, 6, 8],
        },
    ),
    quantities(
        "doses", {"mg": [5, 10, 20, 25, 40, 50, 75, 80, 100, 150, 200, 250, 300, 325, 400, 500, 600, 650, 800, 850]}
    ),
    temperatures("oven temperatures", {"C": [*range(120, 260, 10)], "F": [*range(250, 500, 10)]}),
    temperatures("temperatures", {"C": [*range(-20, 105, 5)], "F": [*range(-10, 215, 5)]}),
    temperatures("fevers", {"C": [37, 38, 39, 40, 41], "F": [99, 100, 101, 102, 103, 104, 105]}),
    quantities("fever times", {"hour": [2, 3, 4, 5, 6, 7, 8, 10, 12, 18, 24, 36, 48, 72], "day": [*range(1, 11)]}),
    quantities(
        "food weights",
        {
            "g": [50, 60, 75, 100, 125, 150, 200, 250, 300, 350, 400, 500, 600, 750],
            "kg": [1, 2, 3, 4],
            "ounce": [4, 5, 6, 8, 10, 12, 50, 60],
            "pound": [1, 2, 3, 4],
        },
    ),
    quantities(
        "film times", {"minute": [60, 75, 80, 85, 90, 95, 100, 105, 110, 115, 120, 130, 140, 150, 165, 180, 200, 210]}
    ),
    money("rents", [350, 400, 450, 500, 550, 600, 650, 700, 750, 800, 900, 950, 1000, 1100, 1200, 1400, 1500, 1800]),
    money(
        "prices",
        [
            10,
            15,
            20,
            25,
            30,
            35,
            40,
            45,
            50,
            60,
            65,
            70,
            75,
            80,
            90,
            95,
            110,
            120,
            130,
            150,
            180,
            200,
            250,
            300,
            350,
            400,
            450,
            500,
            600,
            800,
        ],
    ),
    money(
        "sums",
        [
            1000,
            1200,
            1500,
            2000,
            2500,
            3000,
            4000,
            4500,
            5000,
            7500,
            8000,
            10000,
            12000,
            15000,
            20000,
            25000,
            40000,
            50000,
        ],
    ),
    percentages("rates", [*range(1, 13), 15, 18]),
    percentages("percentages", [5, 8, 10, 12, 15, 18, 20, 22, 25, 30, 35, 40, 45, 50, 60, 70, 75, 80]),
)
VOCABULARIES: Mapping[str, Vocabulary] = {shared.name: shared for shared in _SHARED}
