import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cache.bound import Evidence, HitModel


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ((math.nan, 0.1, 0.5), "similarity is nan"),
        ((1.1, 0.1, 0.5), "similarity is 1.1"),
        ((0.9, math.inf, 0.5), "margin is inf"),
        ((0.9, 0.1, -0.1), "alignment is -0.1"),
        ((0.9, 0.1, 0.5, (("length", math.nan),)), "length is nan"),
        ((0.9, 0.1, 0.5, (("a", 1.0), ("a", 2.0))), "signals"),
        ((0.9, 0.1, 0.5, (("margin", 1.0),)), "signals"),
    ],
)
def test_evidence_that_is_no_evidence_is_refused(values: tuple, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Evidence(*values)


def model(variance: float = 1.0) -> HitModel:
    return HitModel(
        ("similarity", "margin", "alignment"), (0.9, 0.0, 0.5), (0.1, 1.0, 0.5), (2.0, 0.5, 1.0), 1.0, variance
    )


LABELS = st.lists(st.tuples(st.floats(-8, 8), st.booleans()), max_size=12)


@settings(max_examples=40)
@given(LABELS, st.floats(-8, 8), st.floats(0.05, 16))
def test_a_wrong_label_lowers_an_entry_and_a_right_one_raises_it(
    labels: list[tuple[float, bool]], log_odds: float, variance: float
) -> None:
    fitted = model(variance)
    offset = fitted.offset(labels)
    assert fitted.offset([*labels, (log_odds, False)]) <= offset + 1e-9
    assert fitted.offset([*labels, (log_odds, True)]) >= offset - 1e-9


@settings(max_examples=40)
@given(LABELS, st.floats(0.05, 16))
def test_the_offset_is_where_the_labels_and_the_prior_pull_alike(labels: list[tuple[float, bool]], v: float) -> None:
    offset = model(v).offset(labels)
    pull = sum(right - 1.0 / (1.0 + math.exp(-(log_odds + offset))) for log_odds, right in labels)
    assert pull == pytest.approx(offset / v, abs=1e-8)


def test_an_offset_without_labels_is_zero_and_shrinks_with_the_prior() -> None:
    wrong = [(2.0, False)] * 3
    assert model().offset([]) == 0.0
    assert model(4.0).offset(wrong) < model(0.5).offset(wrong) < -0.5


def test_evidence_of_other_signals_is_refused() -> None:
    with pytest.raises(ValueError, match="the evidence holds"):
        model().log_odds(Evidence(0.9, 0.1, 0.5, (("clash", 1.0),)))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"weights": (1.0,)}, "weights"),
        ({"scale": (1.0, 0.0, 1.0)}, "scale"),
        ({"mean": (1.0, math.nan, 1.0)}, "mean"),
        ({"intercept": math.inf}, "intercept"),
        ({"offset_variance": 0.0}, "offset_variance"),
    ],
)
def test_a_model_of_no_sense_is_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        replace(model(), **change)
