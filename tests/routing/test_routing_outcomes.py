"""Outcome tables: what is written is read again, and what is broken is refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from outcome_tables import made_table

from headgate.routing.core import cores
from headgate.routing.outcomes import OutcomeTable, TableError


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = made_table(40, seed=1)
    table.save(tmp_path / "new" / "table")
    again = OutcomeTable.load(tmp_path / "new" / "table")
    assert (again.small, again.large, again.embedder, again.outcomes) == (
        table.small,
        table.large,
        table.embedder,
        table.outcomes,
    )
    np.testing.assert_array_equal(again.states, table.states)
    np.testing.assert_array_equal(again.vectors, table.vectors)
    np.testing.assert_array_equal(again.cores, table.cores)
    assert again.states.dtype == np.float32


def test_parts_and_rights_are_those_of_the_outcomes() -> None:
    table = made_table(60, seed=2)
    parts = [table.rows(part) for part in ("train", "calibration", "test")]
    assert sorted(np.concatenate(parts).tolist()) == list(range(60))
    chosen = table.take(parts[1])
    assert {one.part for one in chosen.outcomes} == {"calibration"}
    assert chosen.right("large").tolist() == [float(table.outcomes[at].large.right) for at in parts[1]]
    np.testing.assert_array_equal(chosen.states[0], table.states[parts[1][0]])
    features = chosen.features(0)
    assert features.text == chosen.outcomes[0].text
    np.testing.assert_array_equal(features.state, chosen.states[0])
    assert features.cores is not None
    np.testing.assert_array_equal(features.cores, chosen.cores[0, : len(cores(features.text))])


def test_a_broken_table_is_refused_with_its_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"outcomes\.jsonl: No such file.*headgate route learn"):
        OutcomeTable.load(tmp_path)
    table = made_table(5, seed=3)
    table.save(tmp_path)
    path = tmp_path / "outcomes.jsonl"
    whole = path.read_text(encoding="utf-8").splitlines()
    for line, broken, complaint in (
        (0, whole[0].replace('"version":4', '"version":7'), "version is 7; 4 is accepted"),
        (2, whole[2].replace('"right":', '"wrong":'), r"outcomes\.jsonl:3: .*right"),
        (5, "", r"outcomes\.jsonl:6: "),
    ):
        path.write_text("\n".join([*whole[:line], broken, *whole[line + 1 :]]) + "\n", encoding="utf-8")
        with pytest.raises(TableError, match=complaint):
            OutcomeTable.load(tmp_path)
    path.write_text("\n".join(whole[:-1]) + "\n", encoding="utf-8")
    with pytest.raises(TableError, match="has 4 prompts; 5, as its first line says"):
        OutcomeTable.load(tmp_path)
    path.write_text("\n".join(whole) + "\n", encoding="utf-8")
    rows = {"states": table.states, "vectors": table.vectors, "cores": table.cores}
    for changed, complaint in (
        ({"states": table.states[:4]}, r"arrays\.npz does not go with outcomes\.jsonl: states has 4 rows; 5"),
        ({"cores": table.cores[:, :2]}, r"cores are \[5, 2, 8\]; \[5, 3, 8\] is accepted"),
    ):
        np.savez_compressed(tmp_path / "arrays.npz", **{**rows, **changed})
        with pytest.raises(TableError, match=complaint):
            OutcomeTable.load(tmp_path)
    (tmp_path / "arrays.npz").write_bytes(b"no arrays")
    with pytest.raises(TableError, match=r"arrays\.npz cannot be read"):
        OutcomeTable.load(tmp_path)
