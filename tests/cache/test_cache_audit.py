from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cache.audits.audit import Audit, Auditor, Interval
from headgate.training.binomial import lower_bound, upper_bound

SECRET = b"a secret of some length"


def auditor(
    share: float = 1.0,
    max_error: float = 0.02,
    alpha: float = 0.05,
    secret: bytes = SECRET,
    false_accept: float = 0.0,
    false_reject: float = 0.0,
) -> Auditor:
    return Auditor(max_error, share, alpha, secret, false_accept=false_accept, false_reject=false_reject)


def audited(into: Auditor, rights: list[bool], share: float | None = None, prefix: str = "") -> list[Audit]:
    """Serve hits until as many as there are labels were audited, and label them; gives all the hits."""
    hits: list[Audit] = []
    labels = iter(rights)
    wanted = len(rights)
    while wanted:
        hits.append(into.draw("entry", f"{prefix}{len(hits)}", share))
        if hits[-1].audited:
            into.label(hits[-1], next(labels))
            wanted -= 1
    return hits


def test_the_draw_depends_on_secret_entry_and_request_only() -> None:
    requests = [str(number) for number in range(200)]

    def drawn(entry: str, secret: bytes, share: float | None = None) -> list[bool]:
        chooses = auditor(0.3, secret=secret)
        return [chooses.draw(entry, request, share).audited for request in requests]

    first = drawn("a", SECRET)
    assert first == drawn("a", SECRET)
    assert first != drawn("b", SECRET)
    assert first != drawn("a", b"another secret")
    raised = drawn("a", SECRET, 0.6)
    assert all(later for earlier, later in zip(first, raised, strict=True) if earlier)
    assert sum(raised) > sum(first)
    assert all(drawn("a", SECRET, 1.0))
    # Fields do not run into one another.
    one, other = auditor(0.5), auditor(0.5)
    assert [one.draw("ab", f"c{n}").audited for n in range(50)] != [
        other.draw("a", f"bc{n}").audited for n in range(50)
    ]


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_so_many_hits_are_audited_as_the_share_says(share: float) -> None:
    chooses = auditor(share)
    count = sum(chooses.draw("entry", str(number)).audited for number in range(4000))
    assert lower_bound(count, 4000, 1e-4) < share < upper_bound(count, 4000, 1e-4)
    assert chooses.interval() == Interval(0.0, pytest.approx(1.0, abs=0.99), None, 4000, count, 0)


def test_the_interval_holds_the_counts_and_the_estimate() -> None:
    measures = auditor(0.5)
    hits = audited(measures, [True] * 190 + [False] * 10)
    got = measures.interval()
    assert (got.hits, got.audited, got.labels) == (len(hits), 200, 200)
    assert got.estimate == pytest.approx(0.05)
    assert 0.01 < got.lower < 0.05 < got.upper < 0.13


def test_the_estimate_weighs_labels_by_the_inverse_of_their_probability() -> None:
    measures = auditor(0.25)
    audited(measures, [False] * 10 + [True] * 30, prefix="a")
    audited(measures, [True] * 60, 1.0, prefix="b")
    assert measures.interval().estimate == pytest.approx(10 * 4 / (40 * 4 + 60))


@pytest.mark.parametrize(("labels", "wrong"), [(300, 0), (1000, 5), (1000, 50), (5000, 100)])
def test_looking_always_costs_little_over_looking_once(labels: int, wrong: int) -> None:
    measures = auditor()
    audited(measures, [False] * wrong + [True] * (labels - wrong))
    got = measures.interval()
    once = lower_bound(wrong, labels, 0.025), upper_bound(wrong, labels, 0.025)
    assert got.lower <= once[0]
    assert once[1] <= got.upper
    assert got.upper - got.lower < 1.8 * (once[1] - once[0])


@pytest.mark.parametrize(("labels", "wrong"), [(100, 100), (400, 300), (20, 0)])
def test_the_bounds_hold_far_from_where_they_are_needed(labels: int, wrong: int) -> None:
    measures = auditor()
    audited(measures, [False] * wrong + [True] * (labels - wrong))
    got = measures.interval()
    assert 0.5 * lower_bound(wrong, labels, 0.025) <= got.lower <= lower_bound(wrong, labels, 0.025)
    assert upper_bound(wrong, labels, 0.025) <= got.upper <= 1.0


HITS = st.lists(st.tuples(st.sampled_from((None, 0.6, 1.0)), st.sampled_from(("right", "wrong", "lost"))), max_size=60)


def played(hits: list[tuple[float | None, str]], **settings: float) -> Auditor:
    measures = auditor(0.4, **settings)
    for number, (share, outcome) in enumerate(hits):
        hit = measures.draw("entry", str(number), share)
        if hit.audited and outcome != "lost":
            measures.label(hit, outcome == "right")
    return measures


@settings(max_examples=30)
@given(HITS, st.integers(0, 59))
def test_worse_labels_raise_both_bounds_and_missing_ones_only_widen(
    hits: list[tuple[float | None, str]], at: int
) -> None:
    def with_outcome(outcome: str) -> Interval:
        return played([(share, outcome if n == at else was) for n, (share, was) in enumerate(hits)]).interval()

    right, wrong, lost = map(with_outcome, ("right", "wrong", "lost"))
    assert 0.0 <= right.lower <= right.upper <= 1.0
    assert right.lower <= wrong.lower <= wrong.upper
    assert right.upper <= wrong.upper
    assert lost.lower == right.lower
    assert lost.upper == wrong.upper


@settings(max_examples=20)
@given(HITS)
def test_more_confidence_or_a_worse_labeller_widens(hits: list[tuple[float | None, str]]) -> None:
    here, surer, laxer = (
        played(hits, **changed).interval() for changed in ({}, {"alpha": 0.01}, {"false_accept": 0.2})
    )
    assert surer.lower <= here.lower <= here.upper <= surer.upper
    assert laxer.lower == here.lower
    assert laxer.upper == pytest.approx(min(1.0, here.upper / 0.8))


@settings(max_examples=20)
@given(HITS, st.randoms(use_true_random=False))
def test_the_order_in_which_labels_come_does_not_matter(hits: list[tuple[float | None, str]], random: object) -> None:
    late = auditor(0.4)
    drawn = [(late.draw("entry", str(n), share), outcome) for n, (share, outcome) in enumerate(hits)]
    random.shuffle(drawn)  # type: ignore[attr-defined]
    for hit, outcome in drawn:
        if hit.audited and outcome != "lost":
            late.label(hit, outcome == "right")
    got, expected = late.interval(), played(hits).interval()
    assert (got.lower, got.upper) == pytest.approx((expected.lower, expected.upper), abs=1e-12)


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_the_interval_holds_at_every_look(share: float) -> None:
    """200 runs in which `max_error` is the true wrong share, some hits audited more often than others. Whether the
    lower bound ever passes it shows as a breach; the upper one is looked at three times a run."""
    rng = np.random.default_rng(11)
    runs, hits, true = 200, 300, 0.03
    below = above = 0
    for run in range(runs):
        measures = auditor(share, true)
        wrong = rng.random(hits) < true
        fell = False
        for number in range(hits):
            hit = measures.draw("entry", f"{run}/{number}", 1.0 if number % 5 == 0 else None)
            if hit.audited:
                measures.label(hit, not wrong[number])
            if number in (50, 120, 299):
                fell = fell or measures.interval().upper < true
        below += fell
        above += measures.breach
    # Each at most 2.5 % of the runs; 99.9 % of binomial(200, 2.5 %) is at most 13.
    assert below <= 13
    assert above <= 13


def test_a_share_above_the_promise_breaches_and_one_below_does_not() -> None:
    rng = np.random.default_rng(5)
    bad, good = auditor(0.5), auditor(0.5)
    audited(bad, (rng.random(400) >= 0.10).tolist())
    audited(good, (rng.random(400) >= 0.01).tolist())
    assert bad.breach
    assert bad.interval().lower > 0.02
    assert not good.breach
    assert good.interval().lower < 0.01 < good.interval().upper


def test_a_breach_stays_when_better_labels_follow() -> None:
    measures = auditor()
    audited(measures, [False] * 10, prefix="bad")
    assert measures.breach
    audited(measures, [True] * 3000, prefix="good")
    assert measures.interval().lower < 0.02
    assert measures.breach


def test_a_breach_is_the_moment_the_lower_bound_passes_the_promise() -> None:
    measures = auditor()
    audited(measures, [True] * 100, prefix="right")
    for number in range(40):
        audited(measures, [False], prefix=str(number))
        assert measures.breach == (measures.interval().lower > 0.02)
    assert measures.breach


def test_labels_that_call_right_answers_wrong_raise_no_false_alarm() -> None:
    # Nothing is wrong, but one right answer in twenty is called so: more than the promise of 2 % allows.
    rights = [number % 20 != 0 for number in range(4000)]
    trusting, knowing = auditor(), auditor(false_reject=0.06)
    audited(trusting, rights)
    audited(knowing, rights)
    assert trusting.breach
    assert not knowing.breach
    assert knowing.interval().lower == 0.0
    assert knowing.interval().upper == trusting.interval().upper
    # Twice as many wrong labels as the labeller's fault explains still are one.
    bad = auditor(false_reject=0.06)
    audited(bad, [number % 8 != 0 for number in range(2000)])
    assert bad.breach


def test_both_kinds_of_error_of_a_labeller_are_covered() -> None:
    random, wrong, accept, reject = np.random.default_rng(5), 0.1, 0.3, 0.05
    covered = 0
    for run in range(40):
        audits = Auditor(0.5, 1.0, 0.1, SECRET, false_accept=accept, false_reject=reject)
        truth = random.random(1500) < wrong
        flips = random.random(1500)
        labels = np.where(truth, flips < accept, flips >= reject)
        audited(audits, labels.tolist(), prefix=str(run))
        interval = audits.interval()
        covered += interval.lower <= wrong <= interval.upper
        assert interval.lower < 0.1
    assert covered >= 36


def test_a_new_sequence_starts_with_a_clean_sheet() -> None:
    measures = auditor()
    audited(measures, [False] * 20)
    pending = measures.draw("entry", "late")
    assert measures.breach
    measures.begin()
    assert not measures.breach
    assert measures.interval() == Interval(0.0, pytest.approx(1.0), None, 0, 0, 0)
    assert not measures.label(pending, False)
    assert measures.interval().labels == 0
    assert measures.label(measures.draw("entry", "new"), True)
    assert measures.interval().labels == 1


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.5, 1.0])), max_size=60), st.integers(0, 60))
def test_two_auditors_together_know_what_one_would(hits: list[tuple[bool, float]], cut: int) -> None:
    """Whoever served what, the sum of the counts gives the interval of one who served all."""
    alone, first, second = auditor(0.5), auditor(0.5), auditor(0.5)
    for number, (right, share) in enumerate(hits):
        for taker in (alone, first if number < cut else second):
            hit = taker.draw("entry", str(number), share)
            if hit.audited:
                taker.label(hit, right)
    sums = Counter(first.counts()) + Counter(second.counts())
    second.replace(sums)
    assert second.interval() == alone.interval()
    assert alone.breach or not second.breach, "who saw it all saw every moment"
    assert second.counts() == alone.counts()
    # It goes on from there: what was drawn before can still be labelled, and more be drawn.
    assert second.draw("entry", "more").sequence == 0


@pytest.mark.parametrize("name", ["hit", "audited", "audited 0.2", "wrong 1.5", "right 1.0"])
def test_counts_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        auditor(0.5).replace({name: 1})


def test_labels_without_an_audit_are_refused() -> None:
    measures = auditor(0.3)
    hits = [measures.draw("entry", str(number)) for number in range(50)]
    skipped = next(hit for hit in hits if not hit.audited)
    with pytest.raises(ValueError, match="not drawn"):
        measures.label(skipped, True)
    chosen = [hit for hit in hits if hit.audited]
    for hit in chosen:
        measures.label(hit, True)
    with pytest.raises(ValueError, match="one label each"):
        measures.label(chosen[0], True)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"max_error": 0.0}, "max_error is 0"),
        ({"alpha": 1.0}, "alpha is 1"),
        ({"share": 0.0}, "share is 0"),
        ({"share": 1.1}, "share is 1.1"),
        ({"false_reject": 1.0}, "false_reject is 1.0"),
        ({"false_accept": 1.0}, "false_accept is 1"),
        ({"false_reject": -0.1}, "false_reject is -0.1"),
        ({"secret": b""}, "secret has 0 bytes"),
        ({"secret": bytes(65)}, "secret has 65 bytes"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change: dict, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        auditor(**change)


@pytest.mark.parametrize("share", [0.29, 1.01])
def test_a_hit_is_audited_no_less_than_the_auditor_says(share: float) -> None:
    with pytest.raises(ValueError, match="the auditor's own"):
        auditor(0.3).draw("entry", "request", share)
