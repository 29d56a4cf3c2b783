"""Learning from a gateway's log: what is read, what is too little, and that promises hold."""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from outcome_tables import made_table

from headgate.routing.outcome_log import LoggedOutcome, OutcomeLog, read_log
from headgate.routing.outcomes import OutcomeTable, TableError
from headgate.routing.quality import FittedQuality, readings
from headgate.training.logged import fit_logged
from headgate.training.outcomes_command import route


def logged(table: OutcomeTable) -> list[LoggedOutcome]:
    found = []
    for place, one in enumerate(table.outcomes):
        rows = readings(table.features(place), "cores")
        assert rows is not None
        found.append(
            LoggedOutcome(
                at=float(place),
                small=table.small,
                large=table.large,
                embedder=table.embedder,
                team="red",
                features=f"{place:016x}",
                answered="large-1",
                readings=rows.tobytes(),
                columns=rows.shape[1],
                cores=True,
                prompt_tokens=one.prompt_tokens,
                one=one.small,
                other=replace(one.large, right=True),
                confidence=one.confidence,
            )
        )
    return found


def test_what_is_fitted_on_a_log_tells_requests_apart_and_keeps_its_promise() -> None:
    table = made_table(6000, seed=21)
    made = fit_logged(logged(table.take(range(3000))))
    assert list(made.estimators) == ["cores", "embedding"]
    made.check(small="small-1", large="large-1", embedder="embedder-1", hand_over="")
    new = table.take(range(3000, 6000))
    for source in ("cores", "embedding"):
        changes = {"state": None} if source == "cores" else {"state": None, "cores": None}
        told = [made.estimate(replace(new.features(place), **changes), "") for place in range(len(new))]
        assert {one.source for one in told} == {source}
        stays = np.array([one.small for one in told]) > made.threshold(source, loss=0.2)
        # The large model's answer counts as right: the loss is the share of answers that differ from it.
        assert 0.05 < (stays & (new.right("small") == 0)).mean() < 0.21
    sure = np.exp([one.confidence.q10 for one in new.outcomes]) > made.cascade(0.1, loss=0.2)
    assert 0.05 < (sure & (new.right("small") == 0)).mean() < 0.21


def test_what_users_say_is_fitted_on_and_sets_no_threshold_and_one_user_weighs_little() -> None:
    lines = logged(made_table(1500, seed=25))
    plain = fit_logged(lines)

    def said(by: Callable[[int], str], team: Callable[[int], str]) -> list[LoggedOutcome]:
        """Of every request somebody says that the small model was wrong."""
        return [
            msgspec.structs.replace(
                one, voice=by(place), team=team(place), one=replace(one.one, right=False), other=None, confidence=None
            )
            for place, one in enumerate(lines)
        ]

    def estimate(made: FittedQuality) -> float:
        return float(np.mean([made.estimators["embedding"].small.predict(one.rows[:1])[0] for one in lines]))

    many = fit_logged([*lines, *said(lambda place: str(place % 100), lambda place: str(place % 100))])
    one_team = fit_logged([*lines, *said(lambda place: str(place % 100), lambda _: "red")])
    one_user = fit_logged([*lines, *said(lambda _: "ann", lambda _: "red")])
    falls = [estimate(plain) - estimate(made) for made in (one_user, one_team, many)]
    assert falls == sorted(falls)
    assert falls[0] < 0.02
    assert falls[1] < 0.13 < falls[2]
    for made in (one_user, one_team, many):
        calibration, before = made.estimators["embedding"].calibration, plain.estimators["embedding"].calibration
        assert calibration is not None
        assert before is not None
        # As many prompts, and all of them to the small model loses what it lost before.
        assert (calibration.prompts, calibration.loss[0]) == (before.prompts, before.loss[0])
        assert made.small == plain.small


def test_a_text_lies_in_one_part_whatever_key_its_hash_had() -> None:
    """Without `cache.secret` the gateway makes itself another at each start."""
    lines = logged(made_table(900, seed=27))
    later = [msgspec.structs.replace(one, features=f"{place + 900:016x}") for place, one in enumerate(lines)]
    once, twice = (
        made.estimators["embedding"].calibration for made in (fit_logged(lines), fit_logged([*lines, *later]))
    )
    assert once is not None
    assert twice is not None
    assert twice.prompts == 2 * once.prompts


def test_a_log_that_is_too_small_one_sided_or_of_other_models_is_refused_with_what_is_needed() -> None:
    lines = logged(made_table(900, seed=22))
    with pytest.raises(ValueError, match="has no outcomes; 200 to fit on and 200 to calibrate on"):
        fit_logged([])
    with pytest.raises(ValueError, match=r"has 300 outcomes .*: \d+ to fit on and \d+ to calibrate on; 200 of each"):
        fit_logged(lines[:300])
    others = [*lines[:800], msgspec.structs.replace(lines[800], large="another")]
    with pytest.raises(ValueError, match=r"has 1 outcomes of the models of its last line"):
        fit_logged(others)
    agreed = [msgspec.structs.replace(one, one=replace(one.one, right=True)) for one in lines]
    with pytest.raises(ValueError, match=r"the small model has (\d+) right and 0 wrong; 20 of each are needed"):
        fit_logged(agreed)


def test_a_log_keeps_its_newest_lines_and_is_read_with_what_was_set_aside(tmp_path: Path) -> None:
    lines = logged(made_table(40, seed=23))
    path = tmp_path / "a" / "outcomes.jsonl"
    size = len(msgspec.json.encode(lines[0]))
    log = OutcomeLog(path, 20 * size)
    for line in lines:
        log.append(line)
        assert sum(file.stat().st_size for file in path.parent.iterdir()) <= 21 * size
    kept = read_log(path)
    assert kept == lines[-len(kept) :]
    assert 8 <= len(kept) <= 21
    np.testing.assert_array_equal(kept[-1].rows[0, :8], np.frombuffer(lines[-1].readings, np.float32)[:8])
    text = path.read_text()
    path.write_text(text.replace('"prompt_tokens"', '"promt_tokens"', 1))
    with pytest.raises(TableError, match=r"outcomes\.jsonl:1: "):
        read_log(path)
    with pytest.raises(TableError, match="No such file"):
        read_log(tmp_path / "none.jsonl")


def test_a_line_that_a_full_disk_cut_does_not_spoil_the_next(tmp_path: Path) -> None:
    lines = logged(made_table(4, seed=26))
    path = tmp_path / "outcomes.jsonl"
    log = OutcomeLog(path, 1 << 30)
    log.append(lines[0])
    size = path.stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Beyond the limit a write ends early with EFBIG, as one on a full disk does with ENOSPC.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + size // 2, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            log.append(lines[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.stat().st_size == size
    log.append(lines[2])
    assert read_log(path) == [lines[0], lines[2]]


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_line_that_a_gateway_was_ended_in_does_not_spoil_the_next(tmp_path: Path, kept: int) -> None:
    lines = logged(made_table(3, seed=29))
    path = tmp_path / "outcomes.jsonl"
    OutcomeLog(path, 1 << 30).append(lines[0])
    cut = msgspec.json.encode(lines[1]) * 3  # longer than what is read at a time
    for before in (path.read_bytes(), b""):
        path.write_bytes(before + cut[:kept])
        OutcomeLog(path, 1 << 30).append(lines[2])
        assert read_log(path) == [*lines[: bool(before)], lines[2]]


def test_a_last_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    lines = logged(made_table(3, seed=28))
    path = tmp_path / "outcomes.jsonl"
    log = OutcomeLog(path, 1 << 30)
    for line in lines:
        log.append(line)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])  # all but the line break
    assert read_log(path) == lines
    path.write_bytes(whole[:-20])
    assert read_log(path) == lines[:2]
    path.write_bytes(whole[:-20] + b"\n")
    with pytest.raises(TableError, match=r"outcomes\.jsonl:3: "):
        read_log(path)


def test_the_command_fits_a_log_or_says_what_it_lacks(tmp_path: Path) -> None:
    path, fitted = tmp_path / "outcomes.jsonl", tmp_path / "own.safetensors"
    log = OutcomeLog(path, 1 << 30)
    for line in logged(made_table(900, seed=24)):
        log.append(line)
    options = ["learn", "--outcomes", str(path), "--fitted", str(fitted)]
    done = CliRunner().invoke(route, options)
    assert done.exit_code == 0, done.output
    assert "from 900 logged outcomes" in done.output
    assert FittedQuality.load(fitted).of_small == "small-1"
    crossed = CliRunner().invoke(route, [*options, "--small", str(tmp_path)])
    assert crossed.exit_code == 2
    path.write_text("")
    refused = CliRunner().invoke(route, options)
    assert refused.exit_code == 1
    assert "outcomes.jsonl: the log has no outcomes" in refused.output
