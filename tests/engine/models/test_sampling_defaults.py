"""What a checkpoint recommends for requests that do not say how they are to be sampled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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
    ],
)
def test_defaults_are_those_of_generation_config(
    stated: dict[str, Any], expected: SamplingDefaults, tmp_path: Path
) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(stated))
    assert sampling_defaults(tmp_path, 320) == expected


def test_without_the_file_sampling_is_plain(tmp_path: Path) -> None:
    assert sampling_defaults(tmp_path, 320) == SamplingDefaults()
