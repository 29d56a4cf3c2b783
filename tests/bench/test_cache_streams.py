"""The streams of `headgate bench cache`: what is equivalent and what is one edit away."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.bench.cache.edits import Differences, draw_pairs, edit_types, edited
from headgate.bench.cache.intents import INTENTS, SPLITS, deal
from headgate.bench.cache.slots import EditType, Value, Vocabulary, words
from headgate.bench.cache.streams import TRAFFIC, Item, Traffic, noisy, stream
from headgate.bench.cache.vocabulary import VOCABULARIES
from headgate.bench.cache.wording import Question, Wording, draw_wording, intent, pieces, render

SEEDS = st.integers(0, 10_000)
BY_NAME = {known.name: known for known in INTENTS}


def open_vocabularies() -> dict[str, Vocabulary]:
    return {v.name: v for known in INTENTS for v in known.slots.values() if not v.closed}


def value_of(vocabulary: Vocabulary, canonical: str) -> Value:
    return next(value for value in vocabulary.values if value.canonical == canonical)


def test_there_are_many_intents_and_each_split_has_most_kinds_of_edit() -> None:
    assert len(INTENTS) == len(BY_NAME) >= 60
    assert len({known.domain for known in INTENTS}) >= 12
    for seed in range(10):
        for share in deal(seed).values():
            assert len({kind for known in share.intents for kind in edit_types(known)}) >= 14


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_splits_share_no_intent_no_template_and_thirds_no_open_word(seed: int) -> None:
    shares = deal(seed)
    assert tuple(shares) == SPLITS
    assert sorted(known.name for share in shares.values() for known in share.intents) == sorted(BY_NAME)
    templates = [template for share in shares.values() for known in share.intents for template in known.templates]
    assert len(templates) == len(set(templates))
    # What certifies and what tests share one third, its intents dealt in turn.
    assert shares["calibrate"].held == shares["test"].held
    assert abs(len(shares["calibrate"].intents) - len(shares["test"].intents)) <= 1
    thirds = [shares[split] for split in ("train", "mend", "test")]
    domains = [{known.domain for known in share.intents} for share in shares.values()]
    assert all(len(own) > 0.5 * len(set.union(*domains)) for own in domains)
    for name, vocabulary in open_vocabularies().items():
        parts = [{value.canonical for value in share.values(vocabulary)} for share in thirds]
        assert sum(len(part) for part in parts) == len(set.union(*parts)), name
        assert set.union(*parts) == {value.canonical for value in vocabulary.values}
        wordings = [
            {form.lower() for value in share.values(vocabulary) for form in value.forms[""]} for share in thirds
        ]
        assert sum(len(words) for words in wordings) == len(set.union(*wordings)), name


def test_another_seed_deals_other_splits() -> None:
    assert deal(0)["test"].intents == deal(0)["test"].intents != deal(1)["test"].intents


def test_no_wording_belongs_to_two_values() -> None:
    for known in INTENTS:
        for vocabulary in known.slots.values():
            meaning: dict[tuple[str, str], str] = {}
            for value in vocabulary.values:
                for mode, forms in value.forms.items():
                    for form in forms:
                        assert meaning.setdefault((mode, form.lower()), value.canonical) == value.canonical, form


def test_wordings_that_mean_the_same_are_one_value() -> None:
    ninety = value_of(VOCABULARIES["short times"], "5400 s")
    assert {"90 minutes", "90 min", "1.5 hours", "an hour and a half"} <= set(ninety.forms[""])
    assert {"1 hour", "one hour", "60 minutes"} <= {
        form for value in VOCABULARIES["short times"].values if value.canonical == "3600 s" for form in value.forms[""]
    }
    assert {"3 pm", "15:00"} <= set(value_of(VOCABULARIES["clock times"], "15:00").forms[""])
    # 5 May 2027 is a Wednesday.
    assert {"5 May 2027", "May 5, 2027", "2027-05-05", "Wednesday 5 May 2027"} <= set(
        value_of(VOCABULARIES["dates"], "2027-05-05").forms[""]
    )


def test_every_template_renders_to_a_clean_text() -> None:
    rng = random.Random(0)
    unclean = re.compile(r"[\[\]{}|~]|  |\(n\)| [?.,!]|\b[Aa] [aeioAEIO]|\b[Aa]n [^aeiouAEIOUhRX18]")
    for seed in range(2):
        for share in deal(seed).values():
            for known in share.intents:
                question = share.draw(known, rng)
                for template in range(len(known.templates)):
                    text = render(question, Wording(template, rng.getrandbits(32)))
                    assert not unclean.search(text), text
                    assert text == text.strip()


@settings(max_examples=5, deadline=None)
@given(SEEDS)
def test_one_text_never_asks_two_questions(seed: int) -> None:
    rng = random.Random(seed)
    share = deal(seed)[rng.choice(SPLITS)]
    keys: dict[str, str] = {}
    for known in share.intents:
        for _ in range(20):
            question = share.draw(known, rng)
            text = render(question, draw_wording(known, rng)).lower()
            assert keys.setdefault(text, question.key) == question.key, text


@settings(max_examples=8, deadline=None)
@given(SEEDS)
def test_an_edit_is_exactly_one_edit_and_stays_in_the_split(seed: int) -> None:
    rng = random.Random(seed)
    differences = Differences()
    share = deal(seed)[rng.choice(SPLITS)]
    for known in share.intents:
        question = share.draw(known, rng)
        for kind in edit_types(known):
            miss = edited(question, kind, share, rng)
            if miss is None:
                continue
            assert miss.key != question.key
            found = differences.between(question.key, miss.key)
            # Four days to 28 days is an edit of the number, and of the unit: 28 days are four weeks.
            assert found == kind or {found, kind} == {"number", "unit"}
            for name, vocabulary in known.slots.items():
                assert miss.values[name] in share.values(vocabulary)


def test_roles_can_be_exchanged_and_symmetric_slots_cannot() -> None:
    rng = random.Random(0)
    shares = deal(0).values()
    tried = 0
    for share in shares:
        for known in share.intents:
            question = share.draw(known, rng)
            if known.roles is not None:
                swapped = edited(question, "role order", share, rng)
                assert swapped is not None
                assert swapped.key != question.key
                again = edited(swapped, "role order", share, rng)
                assert again is not None
                assert again.key == question.key
                tried += 1
            if known.symmetric is not None:
                first, second = known.symmetric
                turned = {
                    **question.values,
                    first: question.values[second],
                    second: question.values[first],
                }
                assert Question(known, turned).key == question.key
                assert edited(question, "role order", share, rng) is None
                tried += 1
    assert tried > 10


def test_a_key_far_away_is_no_edit_and_an_equal_one_neither() -> None:
    differences = Differences()
    flight = "travel.flight|start=Rome|goal=Oslo|date=2027-05-05"
    assert differences.between(flight, flight) is None
    assert differences.between(flight, "travel.flight|start=Rome|goal=Paris|date=2027-05-06") is None
    assert differences.between(flight, "travel.distance|start=Oslo|goal=Rome|unit=km") is None
    assert differences.between(flight, "travel.flight|start=Oslo|goal=Rome|date=2027-05-05") == "role order"
    assert differences.between(flight, "travel.flight|start=Rome|goal=Oslo|date=2027-05-06") == "date"
    # Sorted by name, Bogota comes before Oslo and Paris after it: one city changed all the same.
    assert (
        differences.between(
            "travel.distance|start=Bogota|goal=Oslo|unit=km", "travel.distance|start=Oslo|goal=Paris|unit=km"
        )
        == "entity"
    )


def test_a_near_miss_in_the_same_words_differs_in_the_edited_place_only() -> None:
    share = deal(0)["test"]
    seen: set[EditType | None] = set()
    for pair in draw_pairs(share, 60, seed=1):
        seen.add(pair.edit)
        assert pair.first != pair.second
        if pair.same_words and pair.edit != "role order":
            ours, theirs = pair.first.split(), pair.second.split()
            same = [a for a, b in zip(ours, theirs, strict=False) if a == b]
            behind = [a for a, b in zip(reversed(ours), reversed(theirs), strict=False) if a == b]
            assert same or behind
    allowed = {kind for known in share.intents for kind in edit_types(known)}
    assert seen == allowed | {None}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("what is {size}?", "does not name just the slots"),
        ("is it red?", "does not name just the slots"),
        ("is it {colour:ing}?", "has no mode"),
    ],
)
def test_an_intent_with_a_broken_template_is_refused(line: str, message: str) -> None:
    good = "\n".join(f"way {number} to ask for {{colour}}" for number in range(8))
    colour = words("", "aspect", "red; blue")
    assert len(intent("a.b", good, {"colour": colour}).templates) == 8
    with pytest.raises(ValueError, match=message):
        intent("a.b", f"{good}\n{line}", {"colour": colour})


def test_an_intent_with_too_few_templates_is_refused() -> None:
    with pytest.raises(ValueError, match="8 or more"):
        intent("a.b", "is it {colour}?\n" * 9, {"colour": words("", "aspect", "red; blue")})


def test_a_wording_of_two_values_is_refused() -> None:
    with pytest.raises(ValueError, match="wording of two values"):
        words("", "aspect", "on=start|run; off=stop|Run")


@pytest.fixture(scope="module")
def natural() -> list[Item]:
    return stream(TRAFFIC["natural"], deal(0)["test"], seed=3)


@pytest.fixture(scope="module")
def adversarial() -> list[Item]:
    return stream(TRAFFIC["adversarial"], deal(0)["test"], seed=3)


def test_a_stream_is_a_function_of_its_seed(natural: list[Item]) -> None:
    short = Traffic(requests=150)
    first, again, other = (stream(short, deal(0)["test"], seed=seed) for seed in (3, 3, 4))
    assert first == again != other
    assert len(first) == 150
    assert len(natural) == TRAFFIC["natural"].requests


@pytest.mark.parametrize(("kind", "low", "high"), [("natural", 0.01, 0.04), ("adversarial", 0.45, 0.55)])
def test_a_stream_has_the_near_misses_it_says(
    kind: str, low: float, high: float, request: pytest.FixtureRequest
) -> None:
    items: list[Item] = request.getfixturevalue(kind)
    assert low <= sum(item.edit is not None for item in items) / len(items) <= high


def test_an_edit_type_means_one_edit_from_something_asked(adversarial: list[Item]) -> None:
    differences = Differences()
    asked: dict[tuple[str, str], set[str]] = {}
    for item in adversarial[:800]:
        name = item.key.split("|")[0]
        old = asked.setdefault((item.tenant, name), set())
        kinds = {differences.between(key, item.key) for key in old} - {None}
        if item.key in old:
            assert item.edit is None
        else:
            assert (item.edit in kinds) if kinds else item.edit is None
        old.add(item.key)


def test_a_stream_has_tenants_popular_questions_bursts_and_no_ambiguous_text(natural: list[Item]) -> None:
    assert all(earlier.time <= later.time for earlier, later in pairwise(natural))
    keys: dict[str, str] = {}
    for item in natural:
        assert keys.setdefault(item.text.lower(), item.key) == item.key
    sizes = [sum(item.tenant == tenant for item in natural) for tenant in ("tenant-1", "tenant-2", "tenant-3")]
    assert sum(sizes) == len(natural)
    assert sizes[0] > sizes[1] > sizes[2] > 0
    asked = [item.key for item in natural]
    counts = sorted((asked.count(key) for key in set(asked)), reverse=True)
    assert counts[0] > 10 * counts[len(counts) // 2]
    assert sum(count == 1 for count in counts) > 0.2 * len(counts)
    repeats = sum(
        earlier.text == later.text and later.time - earlier.time < 1.0 for earlier, later in pairwise(natural)
    )
    assert repeats > 20


def test_the_popular_questions_drift() -> None:
    still = Traffic(requests=1500, turnover=0.0, one_hit=0.0, near_miss=0.0, tenants=1)
    moving = Traffic(requests=1500, turnover=0.3, one_hit=0.0, near_miss=0.0, tenants=1)

    def kept(traffic: Traffic) -> float:
        items = stream(traffic, deal(0)["test"], seed=0)
        early, late = ({item.key for item in part} for part in (items[:500], items[-500:]))
        return len(early & late) / len(early)

    assert kept(moving) < 0.7 * kept(still)


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_noise_leaves_the_words_of_slots_alone(seed: int) -> None:
    rng = random.Random(seed)
    share = deal(0)["train"]
    known = rng.choice(share.intents)
    parts = pieces(share.draw(known, rng), draw_wording(known, rng))
    text = noisy(parts, rng).lower()
    for part in parts:
        if part.slot:
            assert part.text.lower() in text
