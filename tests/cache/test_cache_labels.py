"""Labels: who decides, what likelihood may say, the calibration that ships, and their log."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headgate.cache.audits.label_log import LabelLog, LabelRecord
from headgate.cache.audits.labels import KINDS, Calibration, Label, Rate, label, load_calibration
from headgate.cache.store.journal import FileJournal

RATES = {kind: Rate(1, 100, 0.05) for kind in (*KINDS, "any")}
CALIBRATION = Calibration(1, "m", "2026-11-21", "c", -0.5, -2.0, RATES, RATES)
SENTENCE, OTHER = "The train leaves at nine from platform four.", "It departs at nine; go to platform four, please."


@pytest.mark.parametrize(
    ("identical", "cached", "generated", "logprob", "expected"),
    [
        (True, "x", "y", -9.0, Label("identical", True)),
        (False, "42", "The answer is 42.", -9.0, Label("canonical", True)),
        (False, "42", "43", -9.0, Label("canonical", False)),
        # A model that is of two minds finds either answer likely: that makes neither wrong.
        (False, "42", "43", -1.0, None),
        (False, "42", "43", None, None),
        (False, SENTENCE, OTHER, -0.4, Label("likelihood", True)),
        (False, SENTENCE, OTHER, -1.0, None),
        (False, SENTENCE, OTHER, -2.1, Label("likelihood", False)),
        (False, SENTENCE, OTHER, None, None),
    ],
)
def test_who_decides(identical: bool, cached: str, generated: str, logprob: float | None, expected: Label) -> None:
    said = label(
        CALIBRATION, identical=identical, cached=cached, generated=generated, question="?", mean_logprob=logprob
    )
    assert said == expected


def test_the_shipped_calibration_says_what_it_was_measured_on() -> None:
    shipped = load_calibration()
    assert shipped.command.startswith("headgate bench audit")
    assert shipped.date >= "2026-11-21"
    assert shipped.wrong_below < shipped.right_from < 0
    for rates, bound in (
        (shipped.false_accept, shipped.false_accept_bound),
        (shipped.false_reject, shipped.false_reject_bound),
    ):
        assert 0 < bound < 0.1
        assert all(rate.pairs >= 200 and rate.errors / rate.pairs < rate.upper for rate in rates.values())


def test_a_calibration_of_ones_own_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "labels.json"
    file.write_bytes(msgspec.json.encode(CALIBRATION))
    assert load_calibration(file) == CALIBRATION
    for change, message in (
        ({"schema": 2}, "schema is 2; 1 is accepted"),
        ({"right_from": -3.0}, "wrong_below is -2.0 and right_from -3.0"),
        ({"false_accept": {"any": RATES["any"]}}, "false_accept lacks canonical, identical, likelihood"),
        ({"right_from": "high"}, "right_from"),
    ):
        file.write_bytes(msgspec.json.encode(msgspec.to_builtins(CALIBRATION) | change))
        with pytest.raises(ValueError, match=message):
            load_calibration(file)
    with pytest.raises(OSError, match="none"):
        load_calibration(tmp_path / "none")


async def test_the_log_is_bounded_and_leaves_out_what_others_wrote(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    log = LabelLog(journal, capacity=5)
    for number in range(9):
        log.add(LabelRecord("k", 1.0, 0.8, None, True, "identical", "audit", float(number)))
    assert [r.at for r in log] == [4.0, 5.0, 6.0, 7.0, 8.0]
    await log.write()
    await journal.append(b"\xc1")
    await journal.append(
        msgspec.msgpack.encode(LabelRecord("k", 1.0, 0.8, None, True, "identical", "audit", 9.0, schema=1))
    )
    copy = LabelLog(journal)
    await copy.load()
    assert list(copy) == list(log)
    journal.close()
