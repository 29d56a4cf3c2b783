"""All intents, and how intents and vocabularies are dealt out to training, calibration and test.

The intents lie in the files of the folder beside this one, by what people ask about. Each has its templates, one a
line, and its slots: a slot holds the values of a vocabulary that is named, or of one of its own.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from headgate.bench.cache.slots import Value, Vocabulary, vocabulary
from headgate.bench.cache.vocabulary import VOCABULARIES
from headgate.bench.cache.wording import Intent, Question, intent

Split = Literal["train", "mend", "calibrate", "test"]

SPLITS: tuple[Split, ...] = ("train", "mend", "calibrate", "test")
"""What is fitted on, what guards were mended by, what thresholds are certified on, and what the rule is tried on."""
_PARTS = (0, 1, 2, 2)
"""Which third of intents and of open vocabularies each split is of. Two share one, whose intents are dealt in turn."""


def _read(path: Path) -> Iterator[Intent]:
    for name, told in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader).items():
        slots = {
            slot: VOCABULARIES[held] if isinstance(held, str) else vocabulary("", held)
            for slot, held in told["slots"].items()
        }
        yield intent(name, **{**told, "slots": slots})


_FOLDER = Path(__file__).with_suffix("")
INTENTS: tuple[Intent, ...] = tuple(made for path in sorted(_FOLDER.glob("*.yaml")) for made in _read(path))

_TRIES = 50


@dataclass(frozen=True, slots=True)
class Share:
    """What one split may use.

    Splits share no intent, so no template either. Those of different thirds share no value of an open vocabulary; a
    sixth of it would be too little for near misses. Closed classes, the vocabularies of fewer than `slots.CLOSED_BELOW`
    values such as weekdays, comparators and an intent's own choices, belong to all.

    Attributes:
        split: whose share it is.
        intents: a third or a sixth of all, and of each domain as evenly as can be.
        held: values by vocabulary name, for the open vocabularies.
    """

    split: Split
    intents: tuple[Intent, ...]
    held: Mapping[str, tuple[Value, ...]]

    def values(self, vocabulary: Vocabulary) -> Sequence[Value]:
        """The values of a vocabulary that this split may use."""
        return vocabulary.values if vocabulary.closed else self.held[vocabulary.name]

    def draw(self, intent: Intent, rng: random.Random) -> Question:
        """A question of this intent; slots that share a vocabulary hold different values."""
        for _ in range(_TRIES):
            values = {name: rng.choice(self.values(vocabulary)) for name, vocabulary in intent.slots.items()}
            if distinct(intent, values):
                return Question(intent, values)
        raise ValueError(f"the {self.split} share is too small for {intent.name!r}: its slots need different values")


def distinct(intent: Intent, values: Mapping[str, Value]) -> bool:
    """Whether slots that share a vocabulary hold different values."""
    taken = [(id(intent.slots[name]), value.canonical) for name, value in values.items()]
    return len(set(taken)) == len(taken)


def deal(seed: int) -> dict[Split, Share]:
    """Intents and open vocabularies dealt out to the splits at random; equal for equal seeds.

    Another seed gives other splits, so that a figure's spread over seeds includes which intents are the unseen ones.
    """
    # Domain by domain, so that no split lacks one; the offset keeps the first of each domain from one split.
    ranked = sorted(INTENTS, key=lambda intent: (_rank(seed, intent.domain), _rank(seed, intent.name)))
    names = {v.name: v for intent in INTENTS for v in intent.slots.values() if not v.closed}
    dealt = {name: _deal_values(seed, vocabulary) for name, vocabulary in names.items()}
    shares: dict[Split, Share] = {}
    for split, part in zip(SPLITS, _PARTS, strict=True):
        sharing = [other for other, its in zip(SPLITS, _PARTS, strict=True) if its == part]
        intents = ranked[part :: max(_PARTS) + 1][sharing.index(split) :: len(sharing)]
        shares[split] = Share(split, tuple(intents), {name: parts[part] for name, parts in dealt.items()})
    return shares


def _deal_values(seed: int, vocabulary: Vocabulary) -> list[tuple[Value, ...]]:
    # By meaning: 90 minutes and an hour and a half go together.
    ranked = sorted({v.canonical for v in vocabulary.values}, key=lambda c: _rank(seed, f"{vocabulary.name}/{c}"))
    thirds = max(_PARTS) + 1
    parts = (set(ranked[at::thirds]) for at in range(thirds))
    return [tuple(v for v in vocabulary.values if v.canonical in part) for part in parts]


def _rank(seed: int, name: str) -> str:
    return hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).hexdigest()
