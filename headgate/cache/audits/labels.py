"""Labels of served answers: was the cached answer right for the text it was served to, and who says so.

Three labellers: the model writes the very same tokens; its answer has the same canonical form; the cached answer is
likely under the model. Each may call a wrong answer right, and a right one wrong: a model is not always of one mind
about two wordings of a question. So an answer is called wrong only where the model's own differs from it and it is
unlikely too. How often the labels are wrong is measured on questions whose answers are known by construction
(`headgate bench audit`), and what was measured is shipped with its date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec

from headgate.cache.audits.canonical import same_answer

LabelKind = Literal["identical", "canonical", "likelihood"]
KINDS: tuple[LabelKind, ...] = ("identical", "canonical", "likelihood")
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Label:
    """What one labeller says of a served answer."""

    kind: LabelKind
    right: bool


class Rate(msgspec.Struct, frozen=True):
    """How often something went wrong among labelled pairs."""

    errors: int
    pairs: int
    upper: float
    """Upper end of the one-sided 95 % interval (Clopper and Pearson) of the share."""


class Calibration(msgspec.Struct, frozen=True):
    """What `headgate bench audit` measured of the labellers, and where likelihood decides."""

    schema: int
    model: str
    """Whose answers were labelled."""
    date: str
    command: str
    right_from: float
    """Mean log-probability per token from which the likelihood label says right."""
    wrong_below: float
    """Mean log-probability per token below which it says wrong; between the two it says nothing. No other labeller says
    wrong above it either."""
    false_accept: Mapping[str, Rate]
    """By labeller alone, and `any` for `label`: called right among pairs with different answers."""
    false_reject: Mapping[str, Rate]
    """The same way: called wrong among pairs with one answer."""

    def __post_init__(self) -> None:
        if self.schema != _SCHEMA:
            raise ValueError(f"schema is {self.schema}; {_SCHEMA} is accepted")
        if not self.wrong_below <= self.right_from <= 0.0:
            raise ValueError(
                f"wrong_below is {self.wrong_below} and right_from {self.right_from}; "
                "wrong_below <= right_from <= 0 is accepted"
            )
        for name in ("false_accept", "false_reject"):
            if missing := {*KINDS, "any"} - set(getattr(self, name)):
                raise ValueError(f"{name} lacks {', '.join(sorted(missing))}")

    @property
    def false_accept_bound(self) -> float:
        """Upper bound on the probability that a wrong answer gets a label that calls it right."""
        return self.false_accept["any"].upper

    @property
    def false_reject_bound(self) -> float:
        """Upper bound on the probability that a right answer gets a label that calls it wrong."""
        return self.false_reject["any"].upper


def load_calibration(path: Path | None = None) -> Calibration:
    """The shipped calibration, or that of a file which `headgate bench audit --write` made.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no calibration.
    """
    source = files("headgate.cache") / "data" / "labels.json" if path is None else path
    try:
        return msgspec.json.decode(source.read_bytes(), type=Calibration)
    except msgspec.DecodeError as error:
        raise ValueError(f"{source} is no calibration of the labels: {error}") from error


def label(
    calibration: Calibration, *, identical: bool, cached: str, generated: str, question: str, mean_logprob: float | None
) -> Label | None:
    """What the labellers say together; None where they cannot tell.

    Args:
        calibration: where likelihood decides.
        identical: the model, asked the new question, writes exactly the cached answer's tokens.
        cached: the answer that was served.
        generated: the model's own greedy answer to the new question. Not looked at where `identical`.
        question: the new question.
        mean_logprob: of a token of the cached answer, under the model, after the new question; None: not known.
    """
    if identical:
        return Label("identical", True)
    same = same_answer(cached, generated, question=question)
    if same:
        return Label("canonical", True)
    likely = None if mean_logprob is None else by_likelihood(calibration, mean_logprob)
    if same is None:
        return None if likely is None else Label("likelihood", likely)
    return Label("canonical", False) if likely is False else None


def by_likelihood(calibration: Calibration, mean_logprob: float) -> bool | None:
    """What the mean log-probability per token of the cached answer alone says."""
    if mean_logprob >= calibration.right_from:
        return True
    return False if mean_logprob < calibration.wrong_below else None
