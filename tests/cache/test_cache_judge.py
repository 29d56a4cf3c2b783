import asyncio
import itertools
import math
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.bench.cache.hit_fit import fit_model
from headgate.bench.cache.intents import deal
from headgate.bench.cache.wording import draw_wording, render
from headgate.cache.embedding.encoder import BertEncoder
from headgate.cache.embedding.sentence_model import default_folder
from headgate.cache.guards import compare, reading_of
from headgate.cache.judge import FITTED, LEVELS, Certified, Judge, Thresholds, evidence
from headgate.cache.semantic import Choice, Close, SemanticRule, asked_of, choose

SHARE = deal(0)["test"]
RULE = SemanticRule()
STRICT, LOOSE = Certified(0.01, 5.0, 0.009), Certified(0.05, 2.0, 0.04)


def test_a_level_is_the_loosest_certified_for_what_is_accepted() -> None:
    thresholds = Thresholds((STRICT, LOOSE))
    assert thresholds.at(0.005) is None
    assert thresholds.at(0.01) == STRICT
    assert thresholds.at(0.04) == STRICT
    assert thresholds.at(0.5) == LOOSE
    assert Thresholds().at(0.9) is None


def test_it_says_for_what_nothing_is_certified(judge: Judge) -> None:
    own = Judge(judge.comparator, judge.model, {"natural": Thresholds((STRICT, LOOSE))}, judge.embedder)
    assert own.uncertified("natural", 0.01) is None
    below, other = own.uncertified("natural", 0.005), own.uncertified("heavy", 0.05)
    assert below is not None
    assert "natural traffic at a max_error of 0.005" in below
    assert other is not None
    assert "certified is: natural from 0.01 on" in other
    nothing = Judge(judge.comparator, judge.model, {}, judge.embedder).uncertified("heavy", 0.02)
    assert nothing is not None
    assert nothing.endswith("certified is: nothing")


def test_the_fitted_rule_certifies_stricter_levels_by_stricter_thresholds(judge: Judge) -> None:
    levels = judge.thresholds["natural"].levels
    assert {level.max_error for level in levels} <= set(LEVELS)
    assert judge.level("natural", 0.02) is not None
    assert judge.level("natural", 1e-6) is None
    assert all(one.threshold >= other.threshold for one, other in itertools.pairwise(levels))
    assert all(0.0 < level.bound <= level.max_error for level in levels)


def test_harder_traffic_is_served_from_stricter_thresholds_or_not_at_all(judge: Judge) -> None:
    for max_error in LEVELS:
        natural, heavy = judge.level("natural", max_error), judge.level("heavy", max_error)
        assert natural is not None
        assert heavy is None or heavy.threshold > natural.threshold
        adversarial = judge.level("adversarial", max_error)
        assert adversarial is None or (heavy is not None and adversarial.threshold > heavy.threshold)
    assert judge.level("heavy", 0.01) is None
    assert judge.level("heavy", 0.02) is not None
    assert judge.level("adversarial", 0.02) is None
    assert judge.level("adversarial", 0.05) is not None


def test_it_is_fitted_on_the_evidence_that_is_given_now(judge: Judge) -> None:
    seen = compare(reading_of("How tall is it?"), reading_of("What height has it?"))
    assert math.isfinite(judge.model.log_odds(evidence(0.9, 0.0, 1.0, seen)))


def test_a_contradiction_forbids_serving_and_other_words_alone_do_not() -> None:
    asked = reading_of("What is 15% of 240?")
    assert compare(reading_of("What is 15% of 420?"), asked).veto == "numbers"
    assert compare(reading_of("How much is 15 percent of 240?"), asked).veto is None


def test_saved_and_loaded_it_is_the_same(judge: Judge, tmp_path: Path) -> None:
    made = Judge(judge.comparator, judge.model, {"heavy": Thresholds((STRICT,))}, "another", -3.5, {0.02: 0.5})
    made.save(tmp_path)
    again = Judge.load(tmp_path)
    assert (again.floor, again.bars) == (-3.5, {0.02: 0.5})
    assert again.thresholds == {"heavy": Thresholds((STRICT,))}
    assert again.model == judge.model
    assert again.embedder == "another"


@pytest.mark.parametrize("damage", ["schema", "gone", "evidence"])
def test_files_of_another_version_are_refused(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "fitted"
    shutil.copytree(FITTED, folder)
    if damage == "gone":
        (folder / "judge.json").unlink()
    elif damage == "evidence":
        written = (folder / "judge.json").read_text()
        (folder / "judge.json").write_text(written.replace('"one-sided content"', '"one-sided intent"'))
    else:
        (folder / "judge.json").write_text('{"schema": 0}')
    with pytest.raises(ValueError, match="cannot be read"):
        Judge.load(folder)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 30), st.floats(-1.0, 1.0), st.floats(-20.0, 20.0))
def test_the_short_way_to_the_models_answer_gives_the_same(
    judge: Judge, seed: int, similarity: float, alignment: float
) -> None:
    rng = random.Random(seed)
    questions = [SHARE.draw(rng.choice(SHARE.intents), rng) for _ in range(2)]
    stored, asked = (reading_of(render(one, draw_wording(one.intent, rng))) for one in questions)
    seen = compare(stored, asked)
    expected = judge.model.log_odds(evidence(similarity, 0.0, alignment, seen))
    assert judge.log_odds(similarity, alignment, seen) == pytest.approx(expected, abs=1e-9)


def test_more_agreement_is_more_likely_right() -> None:
    pairs = [
        ("How tall is the Eiffel Tower?", "What is the height of the Eiffel Tower?", True),
        ("How tall is the Eiffel Tower?", "How old is the Eiffel Tower?", False),
    ]
    items = [evidence(0.9, 0.0, 3.0 if right else -3.0, compare(reading_of(a), reading_of(b))) for a, b, right in pairs]
    model = fit_model(items, [right for *_, right in pairs], ["a", "b"])
    assert model.log_odds(items[0]) > model.log_odds(items[1])


async def test_a_cache_with_the_real_model_serves_a_paraphrase_and_no_near_miss(judge: Judge) -> None:
    from headgate.cache.answers import AnswerCache
    from headgate.cache.embedding.embedder import SentenceEmbedder
    from headgate.cache.fingerprint import CacheQuery, Fingerprinter
    from headgate.cache.index import FlatIndex
    from headgate.cache.store.memory import MemoryStore
    from headgate.cache.verdict import Hit, Near, StoredChoice

    folder = default_folder()
    assert folder is not None
    embedder = SentenceEmbedder(folder, comparator=judge.comparator)
    await embedder.load()
    assert embedder.name == judge.embedder
    sure = Judge(judge.comparator, judge.model, {"natural": Thresholds((Certified(0.02, 0.0, 0.02),))}, judge.embedder)
    cache = AnswerCache(
        MemoryStore(1 << 20, lambda: 0.0), Fingerprinter(b"0123456789abcdef"), FlatIndex(384), embedder, lambda: 0.0,
        judge=sure,
    )  # fmt: skip

    def query(text: str) -> CacheQuery:
        return CacheQuery("team", "auto", "r", b"{}", text)

    stored = query("How do I reset the password of my account?")
    found = await cache.lookup(stored)
    entry = await cache.store(
        found.fingerprint, stored, choices=(StoredChoice("Click here", "stop"),), model="m", prompt_tokens=1,
        completion_tokens=2, device_s=0.1, vector=found.vector, ttl=10.0,
    )  # fmt: skip
    assert entry is not None
    assert len(entry.sketch) > 0
    hit = (await cache.lookup(query("how can I reset my account's password?"))).verdict
    assert isinstance(hit, Hit)
    assert (hit.entry, hit.bound) == (entry, 0.02)
    refused = (await cache.lookup(query("how can I reset my account's password?"), max_error=0.01)).verdict
    assert isinstance(refused, Near)
    assert refused.reason == "max_error"
    near, delete = await asyncio.gather(
        cache.lookup(query("How do I reset the password of my router?")),
        cache.lookup(query("How do I never reset the password of my account?")),
    )
    assert not isinstance(near.verdict, Hit)
    assert not isinstance(delete.verdict, Hit)
    await embedder.close()


def test_a_text_that_fits_two_questions_told_apart_gets_neither_answer(judge: Judge, encoder: BertEncoder) -> None:
    out, back = "When does the ferry from Dover to Calais leave?", "When does the ferry from Calais to Dover leave?"
    same = "Please tell me when the ferry from Dover to Calais leaves"

    def chosen(asked: str, *stored: str) -> Choice:
        seen = dict(zip((asked, *stored), encoder.encode([asked, *stored]), strict=True))
        packed = {}
        for text, its in seen.items():
            sketch = judge.comparator.sketch(its.ids, its.states)
            packed[text] = b"" if sketch is None else judge.comparator.pack(sketch)
        close = [Close(text, float(seen[asked].vector @ seen[text].vector), packed[text], text) for text in stored]
        return choose(asked_of(asked, RULE, judge), packed[asked], close, RULE, judge, None)

    asked = "ferry Dover Calais timetable"
    for both in ((out, back), (back, out)):
        assert chosen(asked, *both).servable == ()
        assert chosen(asked, *both).reason == "ambiguous"
    assert len(chosen(asked, out).servable) == len(chosen(asked, back).servable) == 1
    # Two wordings of one question are no reason to doubt.
    assert len(chosen(asked, out, same).servable) == 2


def test_what_others_are_compared_beside_it_changes_nothing(judge: Judge, encoder: BertEncoder) -> None:
    texts = ("How do I reset my password?", "password reset", "What is the best way to get a new password for my mail?")
    asked, *stored = (judge.comparator.sketch(seen.ids, seen.states) for seen in encoder.encode(texts))
    alone = [judge.align(asked, [other], [0.8])[0] for other in stored]
    assert judge.align(asked, stored, [0.8, 0.8]) == pytest.approx(alone, abs=1e-3)


def test_what_cannot_be_compared_or_lies_below_the_floor_is_not_looked_at(judge: Judge, encoder: BertEncoder) -> None:
    asked, same, other = (
        judge.comparator.sketch(seen.ids, seen.states)
        for seen in encoder.encode(
            ["How tall is Everest?", "how tall is everest", "Who painted the ceiling of a chapel?"]
        )
    )
    odds = judge.align(asked, [same, None, other], [0.95, 0.9, 0.6])
    assert odds[0] >= judge.floor
    assert odds[1:] == [-math.inf, -math.inf]
    assert judge.align(None, [same], [0.9]) == [-math.inf]
