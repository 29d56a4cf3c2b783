"""How much memory keys and values get where nobody says."""

from __future__ import annotations

from pathlib import Path

import torch

from headgate.engine.kv.budget import host_memory, kv_budget

GIB = 2**30


def test_a_container_has_the_memory_that_it_is_bounded_to(tmp_path: Path) -> None:
    (bound := tmp_path / "memory.max").write_text(f"{GIB}\n")
    assert host_memory([bound, tmp_path / "absent"]) == GIB


def test_without_a_bound_the_machine_has_what_it_has(tmp_path: Path) -> None:
    (unbounded := tmp_path / "memory.max").write_text("max\n")
    (version_1 := tmp_path / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert host_memory([unbounded, version_1]) == host_memory([])


def test_keys_and_values_get_a_quarter_of_it() -> None:
    assert kv_budget(torch.device("cpu")) == host_memory() // 4
