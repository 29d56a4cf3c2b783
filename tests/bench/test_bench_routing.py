"""Curves against values by hand, rules against their law, the attack against a router it can fool, and the command."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from outcome_tables import handing_over, made_table

from headgate.bench.routing.attack import attack, defended, search
from headgate.bench.routing.cascades import LOSSES, Waits, compare_costs
from headgate.bench.routing.cli import routing
from headgate.bench.routing.curves import (
    Measured,
    Policy,
    aiq,
    apgr,
    area,
    calls_for,
    curve,
    gap_closed,
    hull,
    oracle,
    resamples,
    rising,
    seconds_for,
)
from headgate.bench.routing.knn import Neighbours, fit_neighbours
from headgate.bench.routing.policies import compare
from headgate.bench.routing.targets import hold
from headgate.bench.routing.trial import held_out, in_domain
from headgate.bench.routing.wordings import told_by_wordings, wordings
from headgate.routing.core import cores
from headgate.routing.regression import Array
from headgate.training.quality import design, fit_pair, fit_quality
from headgate.training.regression import folds_of

ONCE = np.ones((1, 4))

# The small model has the first right, the large one the first three.
FOUR = Measured(np.array([1.0, 0, 0, 0]), np.array([1.0, 1, 1, 0]), np.ones(4), 3 * np.ones(4))


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals are wide and soon there."""
    monkeypatch.setattr("headgate.bench.routing.trial.RESAMPLES", 60)


def test_a_curve_and_what_it_is_worth_by_hand() -> None:
    policy = Policy("by hand", np.array([0.1, 0.9, 0.2, 0.8]), FOUR.small_s, FOUR.large_s)
    made = curve(FOUR, policy, ONCE)
    assert made.calls[0].tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert made.quality[0].tolist() == [0.25, 0.5, 0.5, 0.75, 0.75]
    assert made.seconds[0].tolist() == [1, 1.5, 2, 2.5, 3]
    assert area(made)[0] == pytest.approx((0.375 + 0.5 + 0.625 + 0.75) / 4)
    assert apgr(made, FOUR, ONCE)[0] == pytest.approx((0.5625 - 0.25) / 0.5)
    assert calls_for(made, FOUR, ONCE, 0.5)[0] == 0.25
    assert calls_for(made, FOUR, ONCE, 0.8)[0] == 0.75
    assert seconds_for(made, FOUR, ONCE, 0.95)[0] == pytest.approx(2.5 / 3)
    best = curve(FOUR, oracle(FOUR), ONCE)
    # The oracle upgrades two and stays at 0.75: 0.375, 0.625, 0.75, 0.75 in quarters. Random: 0.5.
    assert best.calls[0].tolist() == [0, 0.25, 0.5]
    assert area(best)[0] == pytest.approx(0.625)
    assert gap_closed(made, best, FOUR, ONCE)[0] == pytest.approx(0.5)
    # The hull goes from (1, 0.25) over (1.5, 0.5) to (2.5, 0.75): 0.1875 + 0.625 + 0.375 over 2.
    assert aiq(made, FOUR, ONCE)[0] == pytest.approx((0.1875 + 0.625 + 0.375) / 2)
    twice = np.array([[1.0, 1, 0, 2]])
    again = curve(FOUR, policy, twice)
    assert again.quality[0].tolist() == pytest.approx([0.25, 0.5, 0.5, 0.5, 0.5])
    assert again.calls[0].tolist() == pytest.approx([0, 0.25, 0.75, 0.75, 1])


def test_what_a_rule_costs_counts_and_equal_models_have_no_gap() -> None:
    dear = Policy("dear", np.array([0.0, 3, 2, 1]), FOUR.small_s, FOUR.small_s + FOUR.large_s)
    assert seconds_for(curve(FOUR, dear, ONCE), FOUR, ONCE, 0.95)[0] == pytest.approx((4 + 4 + 1 + 1) / 12)
    none = Policy("none", np.zeros(4), FOUR.small_s, FOUR.large_s, stops=True)
    assert seconds_for(curve(FOUR, none, ONCE), FOUR, ONCE, 0.95)[0] == 1.0
    same = Measured(FOUR.small, FOUR.small, FOUR.small_s, FOUR.large_s)
    made = curve(same, Policy("any", np.arange(4.0), same.small_s, same.large_s), ONCE)
    assert np.isnan(apgr(made, same, ONCE)[0])
    assert np.isnan(calls_for(made, same, ONCE, 0.5)[0])
    assert np.isnan(gap_closed(made, curve(same, oracle(same), ONCE), same, ONCE)[0])


def test_a_hull_is_concave_and_above_its_points() -> None:
    drawn = np.random.default_rng(0)
    for _ in range(50):
        x, y = drawn.random(12), drawn.random(12)
        corners, heights = hull(x.tolist(), y.tolist())
        assert np.all(np.diff(heights) > 0)
        slopes = np.diff(heights) / np.diff(corners)
        assert np.all(np.diff(slopes) <= 1e-12)
        above = np.interp(x, corners, heights, right=heights[-1])
        assert np.all(above >= np.where(x >= corners[0], y, 0) - 1e-12)


def test_rules_rank_as_their_law_says_and_intervals_hold_the_value() -> None:
    table = made_table(1000, seed=3)
    trial = in_domain(table.take(table.rows("train")), table.take(table.rows("test")))
    rows = {row.name: row for row in trial.rows}
    closed = {name: row.gap_closed[0] for name, row in rows.items()}
    assert closed["oracle"] == pytest.approx(1.0)
    assert closed["random mix"] == 0.0
    assert closed["probe"] > closed["logistic"] > 0.1
    assert closed["probe"] > closed["length rule"] > closed["task rule"] - 0.2
    assert closed["probe"] > 0.3
    # What is told cannot be beaten by what is seen.
    assert closed["told the small answer"] > max(closed["all of these"], closed["probe"])
    assert closed["all of these"] > 0.3
    for row in trial.rows:
        for value, low, high in (row.gap_closed, row.aiq, row.seconds_at_95):
            assert low - 1e-9 <= value <= high + 1e-9
    assert rows["probe"].aiq[0] > rows["random mix"].aiq[0]
    assert rows["oracle"].seconds_at_95[0] < rows["probe"].seconds_at_95[0] <= 1.0
    assert {line.name for line in trial.lines} == set(closed) - {"random mix"}
    held = held_out(table)
    assert held.families == ("facts", "lists", "sums")
    assert held.pooled["probe"][0] > 0.35
    assert held.mean["probe"][0] == pytest.approx(np.mean(list(held.by_family["probe"].values())))


def test_what_is_handed_over_goes_large_whatever_a_rule_says_at_the_price_of_both() -> None:
    table = handing_over(made_table(800, seed=3))
    known, new = table.take(table.rows("train")), table.take(table.rows("test"))
    found = {policy.name: policy for policy in compare(known, new).policies}
    handed, large_s = new.handed_over, np.array([one.large.device_s for one in new.outcomes])
    for name in ("length rule", "task rule", "kNN", "logistic", "logistic, cores", "probe", "handing over alone"):
        policy, passed = found[name], 0.0002 if name == "probe" else 0.0
        assert policy.need[handed].min() > policy.need[~handed].max()
        np.testing.assert_allclose(policy.upgraded_s[handed], policy.kept_s[handed] + large_s[handed])
        np.testing.assert_allclose(policy.upgraded_s[~handed], passed + large_s[~handed])
    trial = in_domain(known, new)
    rows = {row.name: row.gap_closed[0] for row in trial.rows}
    # It hands over all that it has wrong, so that what is left to tell is where the large one is right.
    assert rows["handing over alone"] > 0.6
    assert trial.handed == handed.mean()
    assert trial.alone[0] == new.alone.mean() > trial.small[0]
    # Counted against what it would have said, every tenth was handed over in vain.
    assert 0.3 < trial.own["logistic"][0] < rows["logistic"] - 0.05
    assert in_domain(*(t.take(range(200)) for t in (made_table(400, seed=1), made_table(400, seed=2)))).own == {}
    assert "handing over alone" in held_out(table.take(range(400))).mean


def test_a_rising_threshold_does_with_each_request_what_the_router_does() -> None:
    table = handing_over(made_table(1600, seed=4))
    known, new = table.take(table.rows("train")), table.take(table.rows("test"))
    once = np.ones((1, len(new)))
    found = {policy.name: policy for policy in compare(known, new, few=True).policies}
    assert found["length rule"].frugal is None
    for name, source, probe_s in (("logistic", "embedding", 0.0), ("probe", "probe", 0.0002)):
        changes, read, unread = found[name].frugal, design(known, source), design(new, source)
        assert changes is not None
        assert read is not None
        assert unread is not None
        alone = np.where(known.handed_over, known.alone, np.nan)
        pair = fit_pair(read, known.right("small"), known.right("large"), alone)
        enough, kept = unread.estimates(pair), unread.kept(pair)
        made = rising(changes, once)
        for threshold in (0.0, 0.2, 0.5, 0.8, 1.0):
            calls, right, seconds = 0.0, 0.0, 0.0
            for at, one in enumerate(new.outcomes):
                own_s = one.small.device_s + probe_s - (0.0002 if probe_s else 0.0)
                if enough[at] <= threshold:
                    calls, right, seconds = calls + 1, right + one.large.right, seconds + probe_s + one.large.device_s
                elif one.own is None or kept[at] > threshold:
                    right, seconds = right + (one.own or one.small).right, seconds + own_s
                else:
                    calls, right, seconds = calls + 1, right + one.large.right, seconds + own_s + one.large.device_s
            point = int((changes.at <= threshold).sum())
            told = made.calls[0, point], made.quality[0, point], made.seconds[0, point]
            assert np.array(told) * len(new) == pytest.approx([calls, right, seconds])
    assert rising(changes, once).calls[0, -1] == pytest.approx(1.0)


def test_other_wordings_tell_all_where_the_content_decides_and_nothing_where_chance_does() -> None:
    asked = wordings(6, 3, seed=1)
    for first in range(0, len(asked), 3):
        ways = asked[first : first + 3]
        assert len({(one.family, one.difficulty, one.content, one.answer) for one in ways}) == 1
        assert len({one.messages for one in ways}) == 3
    assert wordings(6, 3, seed=1) == asked
    # Answers are graded as everywhere: what stands before them may be working.
    assert any(one.working for one in wordings(20, 2, seed=1))
    table = made_table(300, seed=4)
    of_content = [replace(table.outcomes[place - place % 3], text=f"{place}") for place in range(300)]
    decided = told_by_wordings(replace(table, outcomes=tuple(of_content)), 3)
    assert decided.closed[0] == pytest.approx(1.0, abs=0.01)
    assert decided.within == 0.0
    chance = told_by_wordings(table, 3)
    assert chance.closed[1] < 0.1
    assert chance.within == pytest.approx(1.0, abs=0.1)


def test_resamples_are_the_same_for_a_seed_and_keep_the_number() -> None:
    drawn = resamples(20, 7, 1)
    assert drawn[0].tolist() == [1] * 7
    assert drawn.sum(1).tolist() == [7] * 21
    np.testing.assert_array_equal(drawn, resamples(20, 7, 1))


def test_targets_are_tried_on_a_population_whose_loss_is_known() -> None:
    table = made_table(1200, seed=11)
    held = hold(table, fit_quality(table), count=20)
    assert {one.source for one in held} == {"probe", "cores", "embedding", "cascade"}
    by_target = {(one.source, one.target): one for one in held}
    strict, loose = (by_target["probe", f"at most {loss} worse than always large"] for loss in ("2%", "10%"))
    assert strict.feasible <= loose.feasible == 20
    assert loose.violated <= 4
    assert 0 < loose.small < 1
    assert loose.quality > 0.9
    assert loose.cost < 1
    assert loose.test < 0.15


def test_cores_leave_out_what_comes_first() -> None:
    words = [f"w{number}" for number in range(20)]
    assert [core.split() for core in cores(" ".join(words))] == [words[12:], words[10:]]
    assert cores("Prove it. Now then: what is the sum?\n") == ("what is the sum?\n",)
    assert cores("one two three four five six") == ("four five six",)
    assert cores("one two") == cores("") == ()


def test_the_attack_finds_what_fools_a_router_and_the_defence_takes_it_back() -> None:
    def estimate(texts: Sequence[str]) -> Array:
        # A router that hears "prove" and thinks of hard work; higher numbers are a little harder.
        return np.array([0.9 - 0.5 * ("prove" in text) - int(text[:-1].split()[-1]) / 1000 for text in texts])

    made = made_table(300, seed=2)
    asked = [
        replace(one, text=f"Here is a question of many words about one number. What is {place}?")
        for place, one in enumerate(made.outcomes)
    ]
    table = replace(made, outcomes=tuple(asked))
    assert "prove" in search(estimate, ["a b 1?", "d e 2?"], words=("x", "prove"), steps=2)
    found = attack(table, "embedding", estimate, defended(estimate), share=0.3)
    assert found.clean == pytest.approx(0.3, abs=0.07)
    assert found.attacked == 1.0
    assert found.attacked_defended - found.clean_defended < 0.05
    assert 0 < found.gap_closed_defended < 1
    both = defended(estimate)(["prove this. " + asked[5].text, asked[5].text])
    assert both[0] == pytest.approx(both[1], abs=0.02)


def test_the_command_prints_every_rule_and_writes_figures_and_plots(tmp_path: Path) -> None:
    made_table(500, seed=7).save(tmp_path / "table")
    options = ["--outcomes", str(tmp_path / "table"), "--json", str(tmp_path / "f.json"), "--plot", str(tmp_path)]
    done = CliRunner().invoke(routing, [*options, "--only", "table", "--only", "calibration"])
    assert done.exit_code == 0, done.output
    for name in ("random mix", "length rule", "task rule", "kNN", "logistic", "probe", "oracle", "pooled"):
        assert name in done.output
    figures = json.loads((tmp_path / "f.json").read_text(encoding="utf-8"))
    assert figures["prompts"] == 500
    assert {row["name"] for row in figures["in_domain"]["rows"]} >= {"probe", "logistic", "cascade, mean"}
    assert figures["calibration"]
    for name in ("routing-cost-quality.png", "routing-held-out.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    refused = CliRunner().invoke(routing, ["--outcomes", str(tmp_path / "table"), "--only", "attack"])
    assert refused.exit_code == 1
    assert re.search(r"the table is of the small model\s+small-1", refused.output)
    missing = CliRunner().invoke(routing, ["--outcomes", str(tmp_path / "none")])
    assert missing.exit_code == 1
    assert "headgate route learn" in missing.output


def test_rules_are_compared_at_the_same_loss_by_what_they_spend_and_how_long_they_wait() -> None:
    table = made_table(2400, seed=12)
    test = table.take(table.rows("test"))
    places = np.arange(0, len(test), 3)
    ones = np.ones(len(places))
    found = compare_costs(table, fit_quality(table), Waits(places, 1 * ones, 4 * ones, 2 * ones))
    assert [(one.rule, one.loss) for one in found] == [
        ("always large", 0.0),
        *((rule, loss) for loss in LOSSES for rule in ("embedding", "cascade", "cascade after the embedding")),
    ]
    large, embedding, cascade, after = found[0], *found[4:]
    assert (large.seconds, large.quality, large.realised, large.median_s) == (1.0, 1.0, 0.0, 2.0)
    assert max(one.realised for one in found) < 0.13
    # A small answer costs a third of a large one: who is escalated pays both, and waits for both.
    assert embedding.first == embedding.small
    assert embedding.seconds == pytest.approx(1 - embedding.small * 2 / 3)
    for one in (cascade, after):
        assert one.seconds == pytest.approx(one.first / 3 + 1 - one.small)
        assert one.p95_s == 6.0
    assert after.first < cascade.first == 1.0
    assert 0.2 < after.small <= cascade.small < 0.5
    assert cascade.median_s == 6.0 > after.median_s


def test_neighbours_are_weighted_and_drawn_to_the_mean() -> None:
    angles = np.array([0.0, 0.1, 1.0, 3.0])
    vectors = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    outcomes = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    asked = np.array([[1.0, 0.0]], np.float32)
    prior = (outcomes.sum(0) + 1) / 6
    near = Neighbours(vectors, outcomes, 2, 0.0).predict(asked)
    np.testing.assert_allclose(near[0], (outcomes[:2].sum(0) + 2 * prior) / 4)
    sharp = Neighbours(vectors, outcomes, 4, 1e4).predict(asked)
    np.testing.assert_allclose(sharp[0], (outcomes[0] + 2 * prior) / 3, atol=1e-6)
    table = made_table(900, seed=6)
    rights = np.stack([table.right("small"), table.right("large")], 1)
    made = fit_neighbours(table.vectors[:700], rights[:700], folds_of(700, 5, 0))
    said = made.predict(table.vectors[700:])[:, 0]
    assert said[rights[700:, 0] > 0].mean() > said[rights[700:, 0] == 0].mean() + 0.15
