"""The outcome table: prompts, how two models answered them, and what the router could have known beforehand.

A folder with `outcomes.jsonl`, whose first line says which models and which embedder it is of, and `arrays.npz` beside
it with a row for each prompt. `headgate route learn` makes it; estimates of quality are fitted on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.routing.cascade import QUANTILES
from headgate.routing.core import MOST_CORES, cores
from headgate.routing.types import RouteFeatures, Vector

Part = Literal["train", "calibration", "test"]
"""Estimates are fitted on `train`, thresholds set on `calibration`, figures taken on `test`."""
Flags = NDArray[np.float64]
"""`[prompts]`, 1.0 or 0.0."""

_VERSION = 4
_ROWS = ("states", "vectors", "cores")
_LINES, _ARRAYS = "outcomes.jsonl", "arrays.npz"


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one model made of a prompt. `device_s`: its share of the seconds of the steps it was computed in."""

    right: bool
    tokens: int
    device_s: float


@dataclass(frozen=True, slots=True)
class Confidence:
    """Log-probabilities that a model gave the first `HELD_TOKENS` of its own answer: what a cascade decides on."""

    mean: float
    least: float
    q05: float
    q10: float
    q25: float
    q50: float

    @property
    def quantiles(self) -> dict[float, float]:
        """By the share of tokens below it, for each of `QUANTILES`."""
        return dict(zip(QUANTILES, (self.least, self.q05, self.q10, self.q25, self.q50), strict=True))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One prompt and both answers.

    Attributes:
        text: the last user text, which is what is embedded.
        system: the system text.
        turns: messages of the conversation.
        prompt_chars: characters of all of it, tools included.
        has_tools: whether tools were offered.
        family: the kind of task, as far as the maker of the prompts names it.
        level: its difficulty, 0 where the maker names none.
        part: what the prompt is used for.
        prompt_tokens: of the small model.
        probe_s: device seconds of the small model's pass over the prompt alone.
        after_probe_s: device seconds of the small model's answer from that pass.
        small: the small model's answer to the prompt straight away.
        large: the large model's answer.
        confidence: of the small model's answer.
        own: its answer where it may not hand over; None where it did not. `small`, which left the prompt to the large
            model, is then no answer, and not right.
    """

    text: str
    system: str
    turns: int
    prompt_chars: int
    has_tools: bool
    family: str
    level: int
    part: Part
    prompt_tokens: int
    probe_s: float
    after_probe_s: float
    small: Attempt
    large: Attempt
    confidence: Confidence
    own: Attempt | None = None


class TableError(ValueError):
    """An outcome table cannot be read, or does not belong to what it is used with; the message names the file."""


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    small: str
    large: str
    embedder: str
    prompts: int
    hand_over: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeTable:
    """Outcomes and what belongs to each of them, in the same order.

    Attributes:
        small: identity of the small checkpoint.
        large: of the large one.
        embedder: name of the embedding model; empty where nothing was embedded.
        outcomes: one per prompt.
        states: float32 `[prompts, dim]`, the small model's state after each prompt, as `LocalModel.probe` gives it.
        vectors: float32 `[prompts, dim]`, the embedding of each text; dim is 0 where nothing was embedded.
        cores: float32 `[prompts, MOST_CORES, dim]`, those of each text's cores; zeros where a text has fewer.
        hand_over: how answers of the small model began that left the prompt to the large one; empty where none could.
    """

    small: str
    large: str
    embedder: str
    outcomes: tuple[Outcome, ...]
    states: Vector
    vectors: Vector
    cores: Vector
    hand_over: str = ""

    def __post_init__(self) -> None:
        for name in _ROWS:
            rows = len(getattr(self, name))
            if rows != len(self.outcomes):
                raise TableError(f"{name} has {rows} rows; {len(self.outcomes)}, one per prompt, is accepted")
        wanted = (len(self), MOST_CORES, self.vectors.shape[1])
        if self.cores.shape != wanted:
            raise TableError(f"cores are {list(self.cores.shape)}; {list(wanted)} is accepted")

    def __len__(self) -> int:
        return len(self.outcomes)

    def rows(self, part: Part) -> NDArray[np.int64]:
        """Places of a part's prompts."""
        return np.array([place for place, one in enumerate(self.outcomes) if one.part == part], np.int64)

    def take(self, places: Sequence[int] | NDArray[np.int64]) -> OutcomeTable:
        """The prompts at these places, in this order; a place may come several times."""
        index = np.asarray(places, np.int64)
        chosen = tuple(self.outcomes[place] for place in index)
        rows = {name: getattr(self, name)[index] for name in _ROWS}
        return replace(self, outcomes=chosen, **rows)

    def right(self, tier: Literal["small", "large"]) -> Flags:
        """Which answers of a model are right."""
        return np.array([(one.small if tier == "small" else one.large).right for one in self.outcomes], np.float64)

    @property
    def handed_over(self) -> NDArray[np.bool_]:
        """Which prompts the small model left to the large one, `[prompts]`."""
        return np.array([one.own is not None for one in self.outcomes], np.bool_)

    @property
    def given(self) -> Flags:
        """Which answers are right where the small model is asked first: what it hands over the large one answers."""
        return np.where(self.handed_over, self.right("large"), self.right("small"))

    @property
    def alone(self) -> Flags:
        """Which answers are right where the small model may not hand over."""
        return np.array([(one.own or one.small).right for one in self.outcomes], np.float64)

    @property
    def handed_right(self) -> Flags:
        """Of what the small model hands over, whether its own answer is right; not a number elsewhere."""
        return np.where(self.handed_over, self.alone, np.nan)

    def features(self, place: int) -> RouteFeatures:
        """What the router knows of a prompt when the small model has passed over it."""
        one, embedded = self.outcomes[place], self.vectors.shape[1] > 0
        return RouteFeatures(
            text=one.text,
            vector=self.vectors[place] if embedded else None,
            prompt_chars=one.prompt_chars,
            has_tools=one.has_tools,
            turns=one.turns,
            system=one.system,
            state=self.states[place],
            cores=self.cores[place, : len(cores(one.text))] if embedded else None,
        )

    def save(self, folder: Path) -> None:
        """Write the files into the folder, which is made if it is not there."""
        folder.mkdir(parents=True, exist_ok=True)
        header = _Header(_VERSION, self.small, self.large, self.embedder, len(self), self.hand_over)
        lines = [msgspec.json.encode(header), *(msgspec.json.encode(one) for one in self.outcomes)]
        # The lines go last: a table that was broken off has none, and is not taken for a whole one.
        (folder / _LINES).unlink(missing_ok=True)
        np.savez_compressed(folder / _ARRAYS, **{name: getattr(self, name) for name in _ROWS})
        (folder / _LINES).write_bytes(b"\n".join(lines) + b"\n")

    @classmethod
    def load(cls, folder: Path) -> OutcomeTable:
        """Read what `save` wrote.

        Raises:
            TableError: the files are missing, of another version, or do not go together.
        """
        path = folder / _LINES
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise TableError(f"{path}: {error.strerror or error}; `headgate route learn` makes a table") from None
        if not lines:
            raise TableError(f"{path} is empty; `headgate route learn` makes a table")
        header, outcomes = _read(path, lines)
        try:
            with np.load(folder / _ARRAYS) as arrays:
                rows = {name: arrays[name] for name in _ROWS}
        except (OSError, KeyError, ValueError) as error:
            raise TableError(f"{folder / _ARRAYS} cannot be read: {error}") from None
        try:
            return cls(header.small, header.large, header.embedder, outcomes, **rows, hand_over=header.hand_over)
        except TableError as error:
            raise TableError(f"{folder / _ARRAYS} does not go with {_LINES}: {error}") from None


def _read(path: Path, lines: Sequence[bytes]) -> tuple[_Header, tuple[Outcome, ...]]:
    number = 1
    try:
        version = msgspec.json.decode(lines[0], type=dict[str, object]).get("version")
        if version != _VERSION:
            raise TableError(f"{path}: version is {version!r}; {_VERSION} is accepted, make the table anew")
        header = msgspec.json.decode(lines[0], type=_Header)
        decoder = msgspec.json.Decoder(Outcome)
        outcomes = []
        for number, line in enumerate(lines[1:], 2):  # noqa: B007
            outcomes.append(decoder.decode(line))
    except msgspec.DecodeError as error:
        raise TableError(f"{path}:{number}: {error}") from None
    if len(outcomes) != header.prompts:
        raise TableError(f"{path} has {len(outcomes)} prompts; {header.prompts}, as its first line says, are accepted")
    return header, tuple(outcomes)
