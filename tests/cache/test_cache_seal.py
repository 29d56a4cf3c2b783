import os
import random
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.bench.cache.edits import edit_types, edited
from headgate.bench.cache.intents import deal
from headgate.bench.cache.rules import encode
from headgate.bench.cache.wording import Question, draw_wording, render
from headgate.cache.answers import AnswerCache
from headgate.cache.embedding.encoder import BertEncoder
from headgate.cache.fingerprint import CacheQuery, Fingerprinter
from headgate.cache.guards import broken, compare, reading_of, seal_of, sealed, unsealed
from headgate.cache.index import FlatIndex, Vector
from headgate.cache.judge import Judge
from headgate.cache.semantic import Close, SemanticRule, asked_of, choose
from headgate.cache.store.memory import MemoryStore
from headgate.cache.verdict import StoredChoice

SHARE = deal(0)["test"]
FORMS = (
    "£5", "80 oz", "5 pounds", "1", "one", "the first", "early", "2019", "7", "seven", "90 min", "1.5 h",
    "on Sunday", "Sunday, 18 July 2027", "18 July 2027", "2027-07-18", "in May", "at 5 pm", "at 17:00", "",
)  # fmt: skip


def family(seed: int) -> list[str]:
    """A question, the same in other words, other ones of its intent, and its edits: the last is asked."""
    rng = random.Random(seed)
    question = SHARE.draw(rng.choice(SHARE.intents), rng)
    members: list[Question] = [question, question, SHARE.draw(question.intent, rng), SHARE.draw(question.intent, rng)]
    kinds = edit_types(question.intent)
    members += [
        found for kind in rng.sample(kinds, min(3, len(kinds))) if (found := edited(question, kind, SHARE, rng))
    ]
    return [render(member, draw_wording(question.intent, rng)) for member in (*members, question)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30))
def test_a_broken_seal_names_what_the_guards_would(seed: int) -> None:
    *stored, asked = (reading_of(text) for text in family(seed))
    for other in stored:
        told = broken(seal_of(other), seal_of(asked))
        assert told is None or told == compare(other, asked).veto


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FORMS), st.sampled_from(FORMS), st.sampled_from(FORMS))
@example("£5", "80 oz", "")
@example("Sunday, 18 July 2027", "18 July 2027", "7")
@example("the first", "early", "2019")
def test_forms_that_may_stand_for_others_break_no_seal(one: str, other: str, both: str) -> None:
    stored, asked = (reading_of(f"what do I get for it {said} {both}") for said in (one, other))
    told = broken(seal_of(stored), seal_of(asked))
    assert told is None or told == compare(stored, asked).veto


@pytest.mark.parametrize(
    ("stored", "asked", "kind"),
    [
        ("what happened in 2019", "what happened in 2020", "numbers"),
        ("is it open on Monday", "is it open on Tuesday", "dates"),
        ("is it open on Sunday, 18 July 2027", "is it open on 2027-07-18", None),
        ("is it open on Sunday, 18 July 2027", "is it open on Sunday, 25 July 2027", "dates"),
        ("a chair under £350", "a chair under £50", "numbers"),
        ("walk 90 min", "walk for an hour and a half", None),
        ("is it open", "is it closed", None),
    ],
)
def test_seals_break_by_numbers_and_dates(stored: str, asked: str, kind: str | None) -> None:
    assert broken(seal_of(reading_of(stored)), seal_of(reading_of(asked))) == kind


def test_a_seal_of_other_guards_or_none_tells_nothing() -> None:
    stored, asked = (seal_of(reading_of(text)) for text in ("route 7", "route 8"))
    assert broken(stored, asked) == "numbers"
    assert broken(b"", asked) is None
    assert broken(bytes([stored[0] ^ 1]) + stored[1:], asked) is None
    assert broken(stored[:4], asked) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30))
def test_a_seal_gives_the_reading_back(seed: int) -> None:
    for text in family(seed):
        seen = reading_of(text)
        kept = unsealed(sealed(seen, text), text)
        assert kept == seen
        assert kept is not None
        for name, found in vars(seen.foreseen()).items():
            assert getattr(kept.foreseen(), name) == found, name


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("aAbIiX 0159.,;:?!'\"`/-_()+#$%\n\t\x1f½é日\ud800"), max_size=40))
@example("")
@example('the word ""')
@example("run ```x = 1\ny = 2``` at 5 pm on 3/4/2021")
@example("one \x1f two")
def test_a_seal_gives_the_reading_of_any_text_or_none(text: str) -> None:
    seen = reading_of(text)
    assert unsealed(sealed(seen, text), text) in (seen, None)
    assert unsealed(seal_of(seen), text) is None


def test_a_seal_that_is_no_seal_of_the_text_gives_no_reading() -> None:
    text = "How do I boil 3 eggs?"
    made = sealed(reading_of(text), text)
    assert len(made) < 70
    assert unsealed(bytes([made[0] ^ 1]) + made[1:], text) is None, "other guards"
    assert unsealed(made[:-9], text) is None
    assert unsealed(made[:12] + b"\x07" * 9, text) is None


def test_another_process_makes_the_same_seal() -> None:
    text = "from 7 May to 9 May 3 rooms for 2 nights"
    script = f"from headgate.cache.guards import *; t = {text!r}; print(sealed(reading_of(t), t).hex())"
    made = {
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert made == {sealed(reading_of(text), text).hex().encode()}


def test_with_and_without_seals_the_same_is_served(judge: Judge, encoder: BertEncoder) -> None:
    spared = served = 0
    for seed in range(60):
        *stored, asked = family(seed)
        texts = encode([*stored, asked], encoder, judge)
        vectors = {text: texts.embedded.vectors[texts.embedded.rows[text]] for text in (*stored, asked)}
        packed = {text: judge.comparator.pack(sketch) if sketch else b"" for text, sketch in texts.sketches.items()}
        close = [Close(text, min(1.0, float(vectors[text] @ vectors[asked])), packed[text], None) for text in stored]
        close.sort(key=lambda other: -other.similarity)
        marked = [replace(other, seal=judge.seal(other.text)) for other in close]
        for max_error in (None, 0.05, 0.0001):
            known = asked_of(asked, SemanticRule(), judge)
            plain = choose(known, packed[asked], close, SemanticRule(), judge, max_error)
            # In a scope of its own, where nothing was read before.
            told = choose(known, packed[asked], marked, SemanticRule(), judge, max_error, scope=f"{seed} {max_error}")
            assert [at for at, _ in told.servable] == [at for at, _ in plain.servable]
            # Sums of other shapes are rounded otherwise.
            assert [odds for _, odds in told.servable] == pytest.approx([odds for _, odds in plain.servable], abs=1e-3)
            assert (told.bound, told.weighed.keys()) == (plain.bound, plain.weighed.keys())
            # What a seal tells is told before the comparator is asked.
            assert told.reason == plain.reason or plain.reason == "alignment"
            served += len(plain.servable)
        spared += sum(broken(other.seal, judge.seal(asked)) is not None for other in marked)
    assert spared > 50
    assert served > 50


class Letters:
    """Vectors that need no model."""

    name, dim = "letters", 32

    async def embed(self, text: str, scope: str = "") -> Vector:  # noqa: ARG002
        counts = np.bincount([ord(letter) % 32 for letter in text], minlength=32).astype(np.float32)
        return counts / np.float32(np.linalg.norm(counts))

    async def sketch(self, text: str, scope: str = "") -> bytes:  # noqa: ARG002
        return b""


async def test_an_entry_keeps_the_seal_of_its_text_where_it_may_be_served(judge: Judge) -> None:
    cache = AnswerCache(
        MemoryStore(1 << 20, lambda: 0.0), Fingerprinter(b"0123456789abcdef"), FlatIndex(32), Letters(), lambda: 0.0,
        judge=judge,
    )  # fmt: skip
    for text, seal in (
        ("how far is 7 km", judge.seal("how far is 7 km")),
        ("what is new today", b""),
        ("a" * 2000, b""),
    ):
        query = CacheQuery("team", "auto", "r", b"{}", text)
        found = await cache.lookup(query)
        entry = await cache.store(
            found.fingerprint, query, choices=(StoredChoice("yes", "stop"),), model="m", prompt_tokens=1,
            completion_tokens=2, device_s=0.1, vector=found.vector, ttl=10.0,
        )  # fmt: skip
        assert entry is not None
        assert entry.seal == seal
