"""Whether a stored answer serves another text: evidence, model, and thresholds certified for shares of wrong hits."""

from __future__ import annotations

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from headgate.cache.bound import Evidence, HitModel, sigmoid
from headgate.cache.embedding.comparator import Comparator, Sketch
from headgate.cache.guards import KINDS, WEIGHED, Comparison, Reading, compare, reading_of, sealed, unsealed

LEVELS = (0.01, 0.02, 0.05)
"""Shares of wrong hits that thresholds are certified for."""
Traffic = Literal["natural", "heavy", "adversarial"]
"""What a threshold was certified on: about 2 %, 20 % or 50 % of requests are near misses of something asked before."""
FITTED = Path(__file__).parent / "fitted"
_SCHEMA = 2
_READINGS = 8192


@dataclass(frozen=True, slots=True)
class Certified:
    """A threshold and what is proven about serving from it on."""

    max_error: float
    """The share of wrong hits it was certified for."""
    threshold: float
    """Log odds from which on a candidate is served."""
    bound: float
    """Upper bound on the share of wrong hits among those served."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The certified thresholds, each stricter than the next."""

    levels: tuple[Certified, ...] = ()

    def at(self, max_error: float) -> Certified | None:
        """The loosest one certified for at most so many errors; None where nothing is: then nothing may be served."""
        fitting = [level for level in self.levels if level.max_error <= max_error]
        return min(fitting, key=lambda level: level.threshold, default=None)


def evidence(similarity: float, margin: float, alignment: float, seen: Comparison) -> Evidence:
    """What the model looks at.

    Args:
        similarity: cosine of the two texts.
        margin: similarity minus that of the next other candidate.
        alignment: log odds that the comparator gives.
        seen: what the guards have found.
    """
    signals = [(f"one-sided {kind}", float(kind in seen.one_sided)) for kind in KINDS]
    signals += [(f"conflict {kind}", float(kind in seen.conflict)) for kind in sorted(WEIGHED)]
    signals += [("agree", float(len(seen.agree))), ("same", float(seen.same))]
    signals += [(name, min(5.0, float(getattr(seen, name)))) for name in ("shared", "missing", "extra", "loose")]
    signals.append(("comparator", alignment))
    return Evidence(max(-1.0, min(1.0, similarity)), margin, sigmoid(alignment), tuple(signals))


class Judge:
    """Scores candidates with a fitted comparator and model. The same weights serve every scope."""

    def __init__(
        self,
        comparator: Comparator,
        model: HitModel,
        thresholds: Mapping[Traffic, Thresholds],
        embedder: str,
        floor: float = -math.inf,
        bars: Mapping[float, float] | None = None,
    ) -> None:
        """A judge whose thresholds were certified for this comparator and model.

        Args:
            comparator: compares two texts by their wordpieces.
            model: decides by that and by what the guards say.
            thresholds: certified for both.
            embedder: whose states it compares, as `Embedder.name` does.
            floor: log odds of the comparator below which a text is not looked at.
            bars: for levels, the threshold below which none is certified; nothing looks at them to serve.
        """
        self.embedder = embedder
        self.comparator = comparator
        self.model = model
        self.floor = floor
        self.bars = dict(bars or {})
        self.thresholds = thresholds
        self._weight = {name: w / s for name, w, s in zip(model.names, model.weights, model.scale, strict=True)}
        shift = zip(model.weights, model.mean, model.scale, strict=True)
        self._level = model.intercept - sum(weight * mean / scale for weight, mean, scale in shift)
        self._readings: OrderedDict[tuple[str, str], Reading] = OrderedDict()

    @classmethod
    def load(cls, folder: Path = FITTED) -> Judge:
        """From the files that `headgate bench cache --fit` writes.

        Raises:
            ValueError: they are missing or were written by another version.
        """
        try:
            plain = json.loads((folder / "judge.json").read_bytes())
            if plain.get("schema") != _SCHEMA:
                raise ValueError(f"schema {plain.get('schema')!r}; {_SCHEMA} is accepted")
            model = msgspec.convert(plain["model"], HitModel)
            known = evidence(0.0, 0.0, 0.0, compare(reading_of(""), reading_of(""))).names
            if model.names != known:
                raise ValueError(f"it was fitted on {model.names}; {known} is accepted, which --fit gives")
            thresholds = msgspec.convert(plain["thresholds"], dict[Traffic, Thresholds])
            comparator = Comparator.load(folder / "comparator.safetensors")
            bars = {float(level): float(bar) for level, bar in plain["bars"].items()}
            return cls(comparator, model, thresholds, plain["embedder"], float(plain["floor"]), bars)
        except (OSError, KeyError, ValueError) as error:
            raise ValueError(f"the judge in {folder} cannot be read: {error}") from error

    def log_odds(self, similarity: float, alignment: float, seen: Comparison) -> float:
        """What the model gives for the `evidence` of a candidate, in a tenth of the time that making it takes.

        What other candidates there are depends on who asked what before: the margin is left out.
        """
        weight = self._weight
        odds = self._level + weight["similarity"] * max(-1.0, min(1.0, similarity))
        odds += weight["alignment"] * sigmoid(alignment) + weight["comparator"] * alignment
        odds += weight["agree"] * len(seen.agree) + weight["same"] * seen.same
        odds += weight["shared"] * min(5, seen.shared) + weight["missing"] * min(5, seen.missing)
        odds += weight["extra"] * min(5, seen.extra) + weight["loose"] * min(5, seen.loose)
        odds += sum([weight[f"conflict {kind}"] for kind in seen.conflict if kind in WEIGHED])
        return odds + sum([weight[f"one-sided {kind}"] for kind in seen.one_sided])

    def level(self, traffic: Traffic, max_error: float) -> Certified | None:
        """The loosest threshold certified for such traffic and at most so many errors; None where there is none."""
        return self.thresholds.get(traffic, Thresholds()).at(max_error)

    def uncertified(self, traffic: Traffic, max_error: float) -> str | None:
        """What to say where nothing is certified for such traffic and so few errors; None where something is."""
        if self.level(traffic, max_error) is not None:
            return None
        known = {kind: [own.max_error for own in its.levels] for kind, its in self.thresholds.items()}
        certified = ", ".join(f"{kind} from {min(levels):g} on" for kind, levels in known.items() if levels)
        return (
            f"nothing is certified for {traffic} traffic at a max_error of {max_error:g}, so no answer is served to "
            f"other words; certified is: {certified or 'nothing'}"
        )

    def read(self, text: str, scope: str = "", seal: bytes = b"") -> Reading:
        """What the guards see in a text; the last few thousand are remembered, each for its own scope. `seal` spares
        the reading where it is the text's and by the same guards."""
        key = (scope, text)
        known = self._readings.get(key)
        if known is None:
            known = self._readings[key] = unsealed(seal, text) or reading_of(text)
            if len(self._readings) > _READINGS:
                self._readings.popitem(last=False)
        else:
            self._readings.move_to_end(key)
        return known

    @property
    def remembered(self) -> tuple[int, float]:
        """How many readings, and what part of the most that is."""
        return len(self._readings), len(self._readings) / _READINGS

    def seal(self, text: str, scope: str = "") -> bytes:
        """What an entry keeps of what the guards see in its text."""
        return sealed(self.read(text, scope), text)

    def align(self, asked: Sketch | None, stored: Sequence[Sketch | None], cosines: Sequence[float]) -> list[float]:
        """The comparator's log odds for each of the stored texts; minus infinity where it cannot be compared, or falls
        below the floor: what says so little to the comparator is not worth reading."""
        known = [at for at, sketch in enumerate(stored) if sketch is not None]
        odds = [-math.inf] * len(stored)
        if asked is not None and known:
            sketches = [sketch for sketch in stored if sketch is not None]
            found = self.comparator.compare(asked, sketches, [cosines[at] for at in known]).tolist()
            for at, value in zip(known, found, strict=True):
                odds[at] = value if value >= self.floor else -math.inf
        return odds

    @property
    def identity(self) -> str:
        """Names the model and what is certified for it: what is known of its hits says nothing of another's."""
        fitted = (self.embedder, self.model, self.floor, sorted(self.thresholds.items()))
        return hashlib.sha256(msgspec.json.encode(fitted)).hexdigest()[:16]

    def save(self, folder: Path) -> None:
        """Write the files that `load` reads; the comparator in half precision."""
        plain = {
            "schema": _SCHEMA,
            "embedder": self.embedder,
            "floor": self.floor,
            "bars": {str(level): bar for level, bar in self.bars.items()},
            "thresholds": msgspec.to_builtins(self.thresholds),
            "model": msgspec.to_builtins(self.model),
        }
        (folder / "judge.json").write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
        self.comparator.save(folder / "comparator.safetensors")
