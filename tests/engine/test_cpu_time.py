"""How many threads a container's processor time suffices for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headgate.engine.cpu_time import bounded_threads


@pytest.mark.parametrize(
    ("files", "threads"),
    [
        ({"cpu.max": "250000 100000\n"}, 2),
        ({"cpu.max": "20000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "800000 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": ""}, None),
        ({}, None),
    ],
)
def test_there_are_no_more_threads_than_a_container_has_processors_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], threads: int | None
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert bounded_threads(tmp_path) == threads
