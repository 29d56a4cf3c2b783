"""How likely each model is to be right, from regressions that were fitted on an outcome table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from headgate.routing.calibration import Calibration
from headgate.routing.core import cores
from headgate.routing.quality_features import SURFACE, sureness, surface
from headgate.routing.regression import Array, Logistic
from headgate.routing.types import Quality, RouteFeatures, Vector, enough

Source = Literal["probe", "cores", "embedding"]
"""What an estimate reads: the small model's state, the embeddings of the text and of its cores, or of the text alone;
with each what can be counted. `cores` is fitted on cores as well as on whole texts."""
SOURCES: tuple[Source, ...] = get_args(Source)
FITTED = Path(__file__).parent / "fitted"
"""Folder of the files that ship; `demo.safetensors` is of the demo pair."""

_SCHEMA = 7
_PARTS = ("small", "large", "alone")
_LOGISTIC = ("weights", "axes", "origin", "form")
_ROWS = ("thresholds", "loss", "seconds", "small")


class StaleQuality(ValueError):
    """A fitted file is of other models, of another embedder or of another version than what it is to be used with."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimator:
    """Regressions on the same columns, and the thresholds that were calibrated for what they say.

    `small` says how likely the small model is right where the large one is, `large` how likely the large one is, and
    `alone`, of requests that the small model hands over, how likely its own answer would be right where the large one
    is; None where it hands nothing over, or too little to tell.
    """

    small: Logistic
    large: Logistic
    calibration: Calibration | None = None
    alone: Logistic | None = None

    def enough(self, rows: Vector) -> Array:
        """How likely the small model loses nothing, `[n]` for `rows` `[n, columns]`: what the thresholds are on."""
        return enough(self.small.predict(rows), self.large.predict(rows))

    def kept(self, rows: Vector) -> Array:
        """The same of its own answers to requests that it would hand over; 0 where nobody knows."""
        if self.alone is None:
            return np.zeros(len(rows))
        return enough(self.alone.predict(rows), self.large.predict(rows))


@dataclass(frozen=True, slots=True, eq=False)
class FittedQuality:
    """Implements `QualityModel`: from the state where there is one, else from the cores, else from the embedding.

    Attributes:
        of_small: identity of the small checkpoint it was fitted for.
        of_large: of the large one.
        embedder: name of the embedding model; empty where none was there.
        small: of the prompts of the fit that the large model had right, the share that the small one had.
        large: share that the large one had.
        estimators: by what they read; any may be missing.
        cascades: by quantile, of thresholds on the probability of an answer's token there; the seconds are those of
            both answers where the large model takes over.
        hand_over: how answers of the small model began that left a prompt to the large one; empty where none could.
            What is handed over is no loss to the calibrations.
    """

    of_small: str
    of_large: str
    embedder: str
    small: float
    large: float
    estimators: Mapping[Source, Estimator]
    cascades: Mapping[float, Calibration] = field(default_factory=dict)
    hand_over: str = ""

    @property
    def wants_state(self) -> bool:
        """Whether an estimate is better with the small model's state."""
        return "probe" in self.estimators

    def estimate(self, features: RouteFeatures, task: str) -> Quality:  # noqa: ARG002
        """The estimate for a request; about a tenth of a millisecond, whatever its length.

        Where cores are judged, the reading in which the small model is likeliest to be enough is believed: what is put
        before a request can lower the estimate of the whole, but not of what it is not in.

        Where neither state nor embedding is there, it is the two models' mean and its source `task`: nothing is known
        but what is true of every request, so that the task class should decide.
        """
        for source, estimator in self.estimators.items():
            rows = readings(features, source)
            if rows is None or rows.shape[1] != len(estimator.small.weights):
                continue
            told = [_told(estimator, row, source) for row in rows]
            best = max(told, key=lambda one: one.enough)
            if source != "cores":
                return best
            return replace(best, readings=tuple(q.enough for q in told), kept=max(q.kept for q in told))
        return Quality(self.small, self.large, "task")

    def threshold(self, source: Source, *, loss: float | None = None, seconds: float | None = None) -> float:
        """The threshold on `Quality.enough` above which the small model answers, for a target.

        Args:
            source: of the estimates it is for.
            loss: "at most so much worse than the large model alone", 0 to 1.
            seconds: "at most so many device seconds a request, on average".

        Raises:
            ValueError: not exactly one target is given, or nothing was calibrated for the source.
            Infeasible: no threshold is known to keep it; the message names the best that can be reached.
        """
        if (loss is None) == (seconds is None):
            raise ValueError(f"loss is {loss} and seconds is {seconds}; exactly one of them is accepted")
        estimator = self.estimators.get(source)
        if estimator is None or estimator.calibration is None:
            known = ", ".join(name for name, one in self.estimators.items() if one.calibration is not None)
            raise ValueError(f"source is {source!r}; calibrated are: {known or 'none'}")
        if loss is not None:
            return estimator.calibration.for_loss(loss)
        assert seconds is not None
        return estimator.calibration.for_seconds(seconds)

    def cascade(self, quantile: float, *, loss: float) -> float:
        """The least probability of the token at a quantile with which a small answer stands, for a target.

        Args:
            quantile: of the first `HELD_TOKENS` tokens, one of `QUANTILES`.
            loss: "at most so much worse than the large model alone", 0 to 1.

        Raises:
            ValueError: nothing was calibrated for the quantile.
            Infeasible: no threshold is known to keep it; the message names the best that can be reached.
        """
        if quantile not in self.cascades:
            known = ", ".join(f"{one:g}" for one in self.cascades)
            raise ValueError(f"quantile is {quantile:g}; calibrated are: {known or 'none'}")
        return self.cascades[quantile].for_loss(loss)

    def check(self, *, small: str, large: str, embedder: str, hand_over: str) -> None:
        """Refuse to be used with other models than those it was fitted for.

        Args:
            small: identity of the small checkpoint that serves, as `checkpoint_identity` gives it.
            large: of the large one.
            embedder: name of the embedding model; empty without one, which leaves the estimates from the state.
            hand_over: how the small one's answers begin that leave a request to the large one; empty where none do.

        Raises:
            StaleQuality: one of them is another; the message says which and what to do.
        """
        for name, own, given in (("small model", self.of_small, small), ("large model", self.of_large, large)):
            if own != given:
                raise StaleQuality(
                    f"the quality estimates are of the {name} {own}; {given} serves. `headgate route learn` fits anew"
                )
        if embedder and self.embedder and embedder != self.embedder:
            raise StaleQuality(
                f"the quality estimates are of the embedding model {self.embedder}; {embedder} serves. "
                "`headgate route learn` fits anew"
            )
        # One that hands over besides is right where it would have been, or the large one answers.
        if self.hand_over and hand_over != self.hand_over:
            raise StaleQuality(
                f"the quality estimates are of a small model that hands over by {self.hand_over!r}; "
                f"{repr(hand_over) if hand_over else 'nothing'} is set here. `headgate route learn` fits anew"
            )

    def save(self, path: Path) -> None:
        """Write one safetensors file: weights in float32, everything else in its metadata and in float64."""
        tensors: dict[str, np.ndarray] = {}
        plain: dict[str, object] = {
            "schema": _SCHEMA,
            "of_small": self.of_small,
            "of_large": self.of_large,
            "embedder": self.embedder,
            "hand_over": self.hand_over,
            "small": self.small,
            "large": self.large,
            "surface": list(SURFACE),
            "sources": list(self.estimators),
            "cascades": list(self.cascades),
        }
        for source, estimator in self.estimators.items():
            for part in _PARTS:
                own: Logistic | None = getattr(estimator, part)
                if own is not None:
                    tensors |= {f"{source}.{part}.{name}": getattr(own, name) for name in _LOGISTIC}
                    tensors[f"{source}.{part}.bias"] = np.array([own.bias])
            if estimator.calibration is not None:
                _put(f"{source}.calibration", estimator.calibration, plain, tensors)
        for quantile, calibration in self.cascades.items():
            _put(f"cascade.{quantile:g}", calibration, plain, tensors)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, path, {"quality": json.dumps(plain)})

    @classmethod
    def load(cls, path: Path) -> FittedQuality:
        """Read what `save` wrote.

        Raises:
            StaleQuality: another version wrote it; the message names the file.
            ValueError: it cannot be read.
        """
        try:
            with safe_open(path, "numpy") as file:
                plain = json.loads((file.metadata() or {}).get("quality", "{}"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if plain.get("schema") != _SCHEMA or plain.get("surface") != list(SURFACE):
                raise StaleQuality(f"{path} was written by another version; `headgate route learn` fits anew")
            estimators = {source: _estimator(source, plain, tensors) for source in plain["sources"]}
            cascades = {
                quantile: _calibration(f"cascade.{quantile:g}", plain, tensors) for quantile in plain["cascades"]
            }
            means = plain["small"], plain["large"]
            named = plain["of_small"], plain["of_large"], plain["embedder"]
            return cls(*named, *means, estimators, cascades, plain.get("hand_over", ""))
        except StaleQuality:
            raise
        except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
            raise ValueError(f"{path}: the quality estimates cannot be read: {error}") from error


def _told(estimator: Estimator, row: Vector, source: Source) -> Quality:
    small, large = estimator.small.one(row), estimator.large.one(row)
    kept = 0.0 if estimator.alone is None else enough(estimator.alone.one(row), large)
    return Quality(small, large, source, kept=kept)


def readings(features: RouteFeatures, source: Source) -> Vector | None:
    """What an estimate from `source` reads, float32 `[readings, columns]`; None where the request lacks it.

    That is one reading, but for `cores`: the whole text and each of its cores, as if that were the text.
    """
    if source == "probe":
        state = features.state
        return None if state is None else np.concatenate([state, sureness(state), surface(features)])[None]
    vector = features.vector
    if vector is None or (source == "cores" and features.cores is None):
        return None
    whole = np.concatenate([vector, surface(features)])[None]
    return whole if source == "embedding" else np.concatenate([whole, *_of_cores(features)])


def _of_cores(features: RouteFeatures) -> Iterator[Vector]:
    assert features.cores is not None
    for text, vector in zip(cores(features.text), features.cores, strict=True):
        cut = len(features.text) - len(text)
        yield np.concatenate(
            [vector, surface(replace(features, text=text, prompt_chars=max(0, features.prompt_chars - cut)))]
        )[None]


def _estimator(source: Source, plain: Mapping[str, dict[str, float]], tensors: Mapping[str, Vector]) -> Estimator:
    small, large, alone = (_logistic(f"{source}.{part}", tensors) for part in _PARTS)
    if small is None or large is None:
        raise ValueError(f"there are no regressions from {source}")
    name = f"{source}.calibration"
    return Estimator(small, large, _calibration(name, plain, tensors) if name in plain else None, alone)


def _logistic(name: str, tensors: Mapping[str, Vector]) -> Logistic | None:
    if f"{name}.bias" not in tensors:
        return None
    parts = {part: tensors[f"{name}.{part}"] for part in _LOGISTIC}
    return Logistic(bias=float(tensors[f"{name}.bias"][0]), **parts)


def _calibration(name: str, plain: Mapping[str, dict[str, float]], tensors: Mapping[str, Vector]) -> Calibration:
    rows = {row: tensors[f"{name}.{row}"].astype(np.float64) for row in _ROWS}
    return Calibration(**rows, confidence=float(plain[name]["confidence"]), prompts=int(plain[name]["prompts"]))


def _put(name: str, calibration: Calibration, plain: dict[str, object], tensors: dict[str, np.ndarray]) -> None:
    plain[name] = {"confidence": calibration.confidence, "prompts": calibration.prompts}
    tensors |= {f"{name}.{row}": getattr(calibration, row) for row in _ROWS}
