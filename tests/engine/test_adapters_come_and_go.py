"""Adapters that are loaded and taken away while their model computes: nobody else notices, and names never mix."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from adapter_files import stating, write_adapter
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import MakeCheckpoint, write_tokenizer

from headgate.bench.engine.speed import all_answered
from headgate.engine.engine import Engine
from headgate.engine.errors import CheckpointError, EngineStopped, UnknownModel
from headgate.engine.front.local import LocalModel
from headgate.engine.models.adapters.decoder import AdaptedDecoder, LoadedAdapter, Tuning
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.models.resting import ReadAgain
from headgate.engine.request import Delta, Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec

SIX = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
LONG = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
SMALL = EngineSettings(device="cpu", block_size=4, max_step_tokens=24, max_running=12, kv_bytes=1 << 22)
AHEAD = replace(SMALL, kernels="reference", decode_ahead=True)
PROMPT, FRESH = tuple(range(7, 30)), tuple(range(130, 153))
FILES = ("none", "one", "two", "three")
"""What a name may be of; the first is the checkpoint itself."""
_KINDS = (("q_proj", "v_proj"), ("k_proj", "o_proj", "gate_proj"), ("down_proj", "up_proj", "q_proj"))
Tokens = tuple[int, ...]
_serial = itertools.count()


@pytest.fixture(scope="module")
def base(make_checkpoint: MakeCheckpoint) -> Path:
    folder = make_checkpoint("qwen3", seed=4)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def folders(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    at = tmp_path_factory.mktemp("adapters")
    return {
        name: write_adapter(base, at / name, kind, rank=rank, seed=rank)[0]
        for name, kind, rank in zip(FILES[1:], _KINDS, (2, 5, 8), strict=True)
    }


@pytest.fixture(scope="module")
def merged(base: Path, folders: dict[str, Path]) -> Iterator[Engine]:
    """Each of them as a model of its own, which the others are not in."""
    spec = ModelSpec("none", base, dtype="float32")
    engine = Engine(replace(SMALL, prefix_cache=False))
    engine.load(spec, *(replace(spec, name=name, adapter=folder) for name, folder in folders.items()))
    engine.start()
    yield engine
    engine.stop()


@pytest.fixture(scope="module", params=["native", "ahead"])
def engine(base: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The checkpoint alone, as each test leaves it."""
    engine = Engine(SMALL if request.param == "native" else AHEAD)
    engine.load(ModelSpec("base", base, dtype="float32"))
    engine.start()
    yield engine
    engine.stop()


def ask(engine: Engine, asked: Sequence[tuple[str, Tokens]], sampling: SamplingParams = SIX) -> list[Tokens]:
    """What models make of prompts that are given to all of them at once."""
    requests = [Request(f"r{next(_serial)}", model, prompt, sampling) for model, prompt in asked]
    deltas = [delta for _, some in all_answered(engine, requests)[1] for delta in some] if requests else []
    assert not [delta.finish.error for delta in deltas if delta.finish is not None and delta.finish.error]
    return [tuple(t for delta in deltas if delta.request_id == r.id for t in delta.token_ids) for r in requests]


@cache
def alone(merged: Engine, name: str, sampling: SamplingParams = SIX, prompt: Tokens = PROMPT) -> Tokens:
    return ask(merged, [(name, prompt)], sampling)[0]


def numbers(engine: Engine) -> set[int]:
    """Of the adapters that are in memory, once what was under way is done."""
    settled = threading.Event()
    found: set[int] = set()
    adapting = engine._adapting["base"]

    def look() -> list[Delta]:
        runner = adapting._lane._runner
        assert runner is not None
        assert isinstance(runner.adapted, AdaptedDecoder)
        found.update(runner.adapted.loaded)
        settled.set()
        return []

    for thread in threading.enumerate():
        if thread.name == "adapters of base":
            thread.join(60)
    engine._loop.call(look)
    assert settled.wait(60)
    return found


class Running:
    """A request that is answered meanwhile."""

    def __init__(self, engine: Engine, model: LocalModel | str, prompt: Tokens = PROMPT) -> None:
        self.tokens: list[int] = []
        self.error: str | None = None
        self.begun, self.ended = threading.Event(), threading.Event()
        name, revision = (model, "") if isinstance(model, str) else (model.info.name, model.info.revision)
        engine.submit(Request(f"r{next(_serial)}", name, prompt, LONG, revision=revision), self._heard)

    def _heard(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            self.tokens.extend(delta.token_ids)
            self.begun.set()
            if delta.finish is not None:
                self.error = delta.finish.error
                self.ended.set()

    def whole(self) -> Tokens:
        assert self.ended.wait(60)
        return tuple(self.tokens)


Change = tuple[str, str]
"""A name, and what it is to be of from then on; the first of FILES: of nothing."""
_changes = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(FILES)), max_size=3)
_prompts = st.lists(st.tuples(st.sampled_from(("base", *"abc")), st.integers(1, 30), st.integers(0, 2)), max_size=6)


@settings(max_examples=25, deadline=None)
@given(rounds=st.lists(st.tuples(_changes, _prompts, st.booleans()), min_size=1, max_size=5))
def test_whatever_comes_and_goes_each_name_answers_as_its_adapter_alone(
    engine: Engine,
    folders: dict[str, Path],
    merged: Engine,
    rounds: list[tuple[list[Change], list[tuple[str, int, int]], bool]],
) -> None:
    """Between requests, and beside those that run since before: these end as they began."""
    names, running = {"base": "none"}, list[tuple[str, Running]]()
    for changes, prompts, goes_on in rounds:
        if goes_on:
            running.extend((of, Running(engine, engine.models[name])) for name, of in names.items())
        for name, of in changes:
            if of != "none":
                engine.add_adapter("base", name, folders[of])
                names[name] = of
            elif names.pop(name, None):
                engine.remove_adapter(name)
        asked = [
            (name, tuple(5 + (kind * at) % 300 for at in range(length)))
            for name, length, kind in prompts
            if name in names
        ]
        assert ask(engine, asked) == [alone(merged, names[name], prompt=prompt) for name, prompt in asked]
    for of, request in running:
        assert request.whole() == alone(merged, of, LONG)
    assert {*engine.models} == {*names}
    assert len(numbers(engine)) == len(names) - 1, "the memory of the others was given back"
    for name in names.keys() - {"base"}:
        engine.remove_adapter(name)
    assert not numbers(engine)


def test_who_runs_ends_with_what_he_began_with(engine: Engine, folders: dict[str, Path], merged: Engine) -> None:
    """A name that is gone refuses at once; one that is another's finds nothing of what the first has read."""
    first = engine.add_adapter("base", "a", folders["one"])
    running = Running(engine, first, FRESH)
    assert running.begun.wait(60)
    engine.remove_adapter("a")
    with pytest.raises(UnknownModel, match="'a' is not loaded; loaded are base"):
        engine.submit(Request("late", "a", FRESH, SIX), lambda _: None)
    second = engine.add_adapter("base", "a", folders["two"])
    assert second.info.revision != first.info.revision
    assert second.resident(FRESH, "") == 0, "keys and values of the first are not its own"
    beside = Running(engine, second, FRESH)
    assert (running.whole(), beside.whole()) == (alone(merged, "one", LONG, FRESH), alone(merged, "two", LONG, FRESH))
    assert second.resident(FRESH, "") > 0
    assert len(numbers(engine)) == 1
    engine.add_adapter("base", "b", folders["three"])
    assert numbers(engine) == {1, 2}, "a number that is free is taken again"
    third = engine.add_adapter("base", "a", folders["one"])
    assert third.info.revision == first.info.revision, "the same files are the same adapter"
    assert ask(engine, [("a", FRESH), ("b", FRESH)]) == [alone(merged, n, prompt=FRESH) for n in ("one", "three")]
    for name in "ab":
        engine.remove_adapter(name)
    assert not numbers(engine)
    assert ask(engine, [("base", FRESH)]) == [alone(merged, "none", prompt=FRESH)]


def test_who_was_on_his_way_to_an_adapter_never_gets_another(
    engine: Engine, folders: dict[str, Path], merged: Engine
) -> None:
    """Not the one that has the name now, and not the bare model."""
    first = engine.add_adapter("base", "a", folders["one"])
    holds, goes_on = threading.Event(), threading.Event()

    def hold() -> list[Delta]:
        holds.set()
        assert goes_on.wait(60)
        return []

    def take_away() -> list[Delta]:
        known = engine._adapting["base"]._lane.adapters
        known.drop("a")
        known.forget(())
        return []

    engine._loop.call(hold)
    assert holds.wait(60)
    # Known when it is sent; the step thread takes the name away before it looks at it.
    engine._loop.call(take_away)
    late = Running(engine, first)
    goes_on.set()
    assert late.whole() == ()
    assert late.error == "model 'a' is not loaded; loaded are base"
    engine.add_adapter("base", "a", folders["two"])
    numbers(engine)
    with pytest.raises(UnknownModel):
        Running(engine, first)
    assert Running(engine, "a").whole() == alone(merged, "two", LONG)
    engine.remove_adapter("a")
    assert not numbers(engine)


async def test_nobody_gets_the_adapter_that_has_the_number_of_his_own(
    engine: Engine, folders: dict[str, Path], merged: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a number is taken again before the memory of the adapter that had it was given back."""
    sleeper = engine.models["base"].sleeper
    assert sleeper is not None
    first = engine.add_adapter("base", "a", folders["one"])
    await asyncio.wrap_future(sleeper.sleep())
    engine.remove_adapter("a")  # which leaves it in memory
    tuned_by, late = AdaptedDecoder.tuned_by, list[Running]()

    def comes_meanwhile(self: AdaptedDecoder, adapters: Mapping[int, LoadedAdapter]) -> Tuning | None:
        if [each.name for each in adapters.values()] == ["b"] and not late:
            late.append(Running(engine, first))
        return tuned_by(self, adapters)

    monkeypatch.setattr(AdaptedDecoder, "tuned_by", comes_meanwhile)
    engine.add_adapter("base", "b", folders["two"])
    assert [each.whole() for each in late] == [alone(merged, "one", LONG)]
    assert numbers(engine) == {2}
    third = engine.add_adapter("base", "c", folders["one"])
    await asyncio.wrap_future(sleeper.sleep())
    engine.remove_adapter("c")
    engine.add_adapter("base", "c", folders["three"])
    assert numbers(engine) == {1, 2}
    with pytest.raises(UnknownModel):
        Running(engine, third)
    assert ask(engine, [("b", PROMPT), ("c", PROMPT)]) == [alone(merged, name) for name in ("two", "three")]
    for name in "bc":
        engine.remove_adapter(name)
    assert not numbers(engine)


def test_who_adds_one_is_told_where_the_engine_stops(
    base: Path, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does not wait for ever, as while a model wakes that nobody takes over any more."""
    engine = Engine(SMALL)
    engine.load(ModelSpec("base", base, dtype="float32"))
    engine.start()
    sleeper = engine.models["base"].sleeper
    assert sleeper is not None
    sleeper.sleep().result(60)
    wakes, stopped = threading.Event(), threading.Event()
    back = ReadAgain.back

    def slow(self: ReadAgain) -> LanguageModel:
        wakes.set()
        assert stopped.wait(60)
        return back(self)

    monkeypatch.setattr(ReadAgain, "back", slow)
    told: list[Exception] = []

    def add() -> None:
        try:
            engine.add_adapter("base", "a", folders["one"])
        except EngineStopped as error:
            told.append(error)

    adding = threading.Thread(target=add, daemon=True)
    adding.start()
    assert wakes.wait(60)
    engine.stop()
    stopped.set()
    adding.join(20)
    assert told


async def test_sleep_keeps_what_was_added(engine: Engine, folders: dict[str, Path], merged: Engine) -> None:
    model = engine.add_adapter("base", "a", folders["one"])
    sleeper = engine.models["base"].sleeper
    assert sleeper is not None
    await asyncio.wrap_future(sleeper.sleep())
    assert Running(engine, model).whole() == alone(merged, "one", LONG)
    await asyncio.wrap_future(sleeper.sleep())
    engine.add_adapter("base", "b", folders["two"])
    assert sleeper.stats.state == "awake", "to add one wakes the model"
    await asyncio.wrap_future(sleeper.sleep())
    engine.remove_adapter("a")
    assert sleeper.stats.state == "asleep", "to take one away does not"
    with pytest.raises(UnknownModel):
        ask(engine, [("a", PROMPT)])
    assert ask(engine, [("b", PROMPT), ("base", PROMPT)]) == [alone(merged, n) for n in ("two", "none")]
    engine.add_adapter("base", "c", folders["three"])
    assert len(numbers(engine)) == 2
    assert ask(engine, [("b", PROMPT), ("c", PROMPT)]) == [alone(merged, n) for n in ("two", "three")]
    for name in "bc":
        engine.remove_adapter(name)
    assert not numbers(engine)


def test_what_cannot_be_served_is_told_and_changes_nothing(
    engine: Engine, base: Path, folders: dict[str, Path], merged: Engine, tmp_path: Path
) -> None:
    engine.add_adapter("base", "a", folders["one"])
    damaged = {name: tmp_path / name for name in ("dora", "torn", "none")}
    for name in ("dora", "torn"):
        shutil.copytree(folders["two"], damaged[name])
    stating(use_dora=True)(damaged["dora"])
    whole = (damaged["torn"] / "adapter_model.safetensors").read_bytes()
    (damaged["torn"] / "adapter_model.safetensors").write_bytes(whole[: len(whole) // 2])
    for name, why in (
        ("dora", "the adapter 'a': .*use_dora is True, which is not supported"),
        ("torn", "the adapter 'a': .*adapter_model.safetensors: not a readable safetensors file"),
        ("none", "adapter_config.json: the file is missing"),
    ):
        with pytest.raises(CheckpointError, match=why):
            engine.add_adapter("base", "a", damaged[name])
    with pytest.raises(UnknownModel, match="model 'a' is not loaded; loaded are base"):
        engine.add_adapter("a", "b", folders["two"])
    with pytest.raises(ValueError, match="a model named 'base' is loaded already"):
        engine.add_adapter("base", "base", folders["two"])
    for name in ("base", "b"):
        with pytest.raises(UnknownModel, match=f"there is no adapter '{name}'; there are a"):
            engine.remove_adapter(name)
    assert ask(engine, [("a", PROMPT)]) == [alone(merged, "one")]
    assert numbers(engine) == {1}
    engine.remove_adapter("a")
    assert not numbers(engine)
    with pytest.raises(CheckpointError, match="the model 'one' takes no adapters for rows"):
        merged.add_adapter("one", "b", folders["two"])
    stopped = Engine(SMALL)
    stopped.load(ModelSpec("base", base, dtype="float32"))
    with pytest.raises(EngineStopped):
        stopped.add_adapter("base", "a", folders["one"])
