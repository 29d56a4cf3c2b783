"""What a checkpoint recommends for requests that do not say how they are to be sampled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.engine.errors import CheckpointError
from headgate.engine.models.generation import SamplingDefaults, sampling_defaults


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({}, SamplingDefaults()),
        ({"temperature": 0.0}, SamplingDefaults(temperature=0.0)),
        ({"temperature": 0, "do_sample": True}, SamplingDefaults(temperature=0.0)),
        ({"temperature": None, "top_p": None}, SamplingDefaults()),
        ({"temperature": 0.7, "do_sample": False}, SamplingDefaults(temperature=0.0)),
        ({"temperature": 0.7, "top_p": 0.8, "top_k": 20}, SamplingDefaults(temperature=0.7, top_p=0.8)),
        ({"temperature": 0.7, "top_k": 20, "do_sample": True}, SamplingDefaults(temperature=0.7, top_k=20)),
        ({"top_p": 0, "top_k": -1, "do_sample": True}, SamplingDefaults()),
    ],
)
def test_defaults_are_those_of_generation_config(
    stated: dict[str, Any], expected: SamplingDefaults, tmp_path: Path
) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(stated))
    assert sampling_defaults(tmp_path, 320) == expected


def test_without_the_file_sampling_is_plain(tmp_path: Path) -> None:
    assert sampling_defaults(tmp_path, 320) == SamplingDefaults()


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ('{"temperature": "hot"}', "temperature is 'hot'; a number"),
        ('{"temperature": -1}', "temperature is -1; a number from 0 to"),
        ('{"temperature": NaN}', "temperature is nan; a number"),
        ('{"top_p": 1.5}', "top_p is 1.5; a number from 0 to 1 is accepted"),
        ('{"top_k": [5]}', r"top_k is \[5\]; a number"),
        ('{"begin_suppress_tokens": 5}', "begin_suppress_tokens is 5; a list of token ids from 0 to 319"),
        ('{"begin_suppress_tokens": [320]}', r"begin_suppress_tokens is \[320\]; a list of token ids"),
    ],
)
def test_what_no_request_may_say_no_checkpoint_may(stated: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(stated)
    with pytest.raises(CheckpointError, match=rf"generation_config.json: {told}"):
        sampling_defaults(tmp_path, 320)
