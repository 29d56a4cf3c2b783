"""Ranges of sampling settings."""

from __future__ import annotations

import pytest

from headgate.engine.sampling.params import SamplingError, SamplingParams


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", (-0.1, float("nan"), float("inf"))),
        ("top_p", (0.0, 1.1, float("nan"))),
        ("top_k", (-1,)),
        ("min_p", (-0.1, 1.0)),
        ("presence_penalty", (-2.1, 2.1, float("nan"))),
        ("frequency_penalty", (-2.1, 2.1)),
        ("repetition_penalty", (0.0, -1.0, float("inf"))),
        ("logit_bias", (((100, 1.0),), ((-1, 1.0),), ((5, 101.0),), ((5, float("nan")),))),
        ("max_tokens", (0,)),
        ("stop_token_ids", ((100,), (-1,))),
        ("begin_suppress_tokens", ((100,), (-1,))),
        ("logprobs", (-1, 21)),
    ],
)
def test_values_out_of_range_are_refused_by_name(field: str, values: tuple) -> None:
    for value in values:
        with pytest.raises(SamplingError, match=f"{field} is .* is accepted") as failure:
            SamplingParams(**{field: value}).validate(100)
        assert failure.value.field == field


def test_the_edges_of_the_ranges_are_accepted() -> None:
    SamplingParams().validate(100)
    SamplingParams(
        temperature=0.0,
        top_p=1e-6,
        top_k=10**9,
        min_p=0.99,
        presence_penalty=-2,
        frequency_penalty=2,
        repetition_penalty=0.01,
        logit_bias=((0, -100.0), (99, 100.0)),
        seed=-5,
        max_tokens=1,
        stop_token_ids=(0, 99),
        begin_suppress_tokens=(0, 99),
        logprobs=20,
    ).validate(100)
