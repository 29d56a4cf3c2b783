"""Models that are adapters of one: computed in the same steps, with the answers of their merged checkpoints."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from adapter_files import write_adapter
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import MakeCheckpoint, write_tokenizer

from headgate.bench.engine.speed import all_answered
from headgate.engine.device_steps.ahead import AheadDecoder
from headgate.engine.engine import Engine
from headgate.engine.errors import UnknownModel
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kernels.reference_rows import ReferenceRows
from headgate.engine.kv.store import KVStore
from headgate.engine.kv.tables import KVTables
from headgate.engine.models.adapters.decoder import AdaptedDecoder
from headgate.engine.models.loader import load_decoder
from headgate.engine.request import Finish, Request
from headgate.engine.runner import Runner
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.sequence import Sequence as EngineSequence
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.engine.stepping.found import Sampled
from headgate.engine.stepping.inputs import Interrupt

NAMES = ("base", "a", "b", "c")
SIX = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
SMALL = EngineSettings(device="cpu", block_size=4, max_step_tokens=24, max_running=12, kv_bytes=1 << 22)
Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Adapters:
    """A checkpoint, and folders of adapters of it by name."""

    base: Path
    folders: dict[str, Path]


@pytest.fixture(scope="module")
def adapters(make_checkpoint: MakeCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Adapters:
    base, folder = make_checkpoint("qwen3", seed=4), tmp_path_factory.mktemp("adapters")
    write_tokenizer(base)
    kinds = (("q_proj", "v_proj"), ("k_proj", "o_proj", "gate_proj"), ("down_proj", "up_proj"))
    return Adapters(
        base,
        {
            name: write_adapter(base, folder / name, kind, rank=rank, seed=rank)[0]
            for name, kind, rank in zip(NAMES[1:], kinds, (2, 5, 8), strict=True)
        },
    )


def started(adapters: Adapters, engine_settings: EngineSettings, *, merged: bool = False) -> Engine:
    """The base and its adapters; or each of them merged, as a model of its own."""
    engine = Engine(engine_settings)
    base = ModelSpec("base", adapters.base, dtype="float32")
    if merged:
        engine.load(base, *(replace(base, name=name, adapter=folder) for name, folder in adapters.folders.items()))
    else:
        engine.load(replace(base, adapters=adapters.folders))
    engine.start()
    return engine


@pytest.fixture(scope="module", params=["native", "ahead"])
def engine(adapters: Adapters, request: pytest.FixtureRequest) -> Iterator[Engine]:
    ahead = replace(SMALL, kernels="reference", decode_ahead=True)
    engine = started(adapters, SMALL if request.param == "native" else ahead)
    yield engine
    engine.stop()


@pytest.fixture(scope="module")
def merged(adapters: Adapters) -> Iterator[Engine]:
    engine = started(adapters, replace(SMALL, prefix_cache=False), merged=True)
    yield engine
    engine.stop()


_serial = itertools.count()


def ask(engine: Engine, asked: Sequence[tuple[str, Tokens]], tenant: str = "") -> list[tuple[Tokens, Finish]]:
    """What models make of prompts that are given to all of them at once."""
    requests = [Request(f"r{next(_serial)}", model, prompt, SIX, tenant=tenant) for model, prompt in asked]
    deltas = [delta for _, some in all_answered(engine, requests)[1] for delta in some]
    found = []
    for request in requests:
        own = [delta for delta in deltas if delta.request_id == request.id]
        (finish,) = (delta.finish for delta in own if delta.finish is not None)
        assert finish.error is None
        found.append((tuple(token for delta in own for token in delta.token_ids), finish))
    return found


@settings(max_examples=25)
@given(
    asked=st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 30), st.integers(0, 2)), min_size=1, max_size=9),
    tenant=st.sampled_from(("", "other")),
)
def test_a_batch_of_any_mix_gets_what_merged_checkpoints_give(
    engine: Engine, merged: Engine, asked: list[tuple[str, int, int]], tenant: str
) -> None:
    """Whoever is beside them, and whatever of the prompts is cached: they begin alike, and come again and again."""
    prompts = [(model, tuple(5 + (kind * at) % 300 for at in range(length))) for model, length, kind in asked]
    wanted = [tokens for tokens, _ in ask(merged, prompts)]
    for _ in range(2):
        assert [tokens for tokens, _ in ask(engine, prompts, tenant)] == wanted


def test_keys_and_values_are_nobody_elses(engine: Engine) -> None:
    prompt = tuple(range(200, 221))
    cached = {}
    for name in NAMES:
        others = [model.resident(prompt, "") for n, model in engine.models.items() if n not in cached]
        assert not any(others), "what another has read is not there"
        ((_, finish),) = ask(engine, [(name, prompt)])
        cached[name] = finish.cached_tokens
    assert set(cached.values()) == {0}
    again = ask(engine, [(name, prompt) for name in NAMES])
    assert [finish.cached_tokens for _, finish in again] == [20] * len(NAMES)
    assert len({tokens for tokens, _ in again}) == len(NAMES)
    assert engine.models["a"].resident(prompt, "") == 20
    assert engine.models["a"].resident(prompt, "another tenant") == 0
    tables = KVTables(4, 4, b"key")
    assert len({tables.table("t", name).root for name in ("", "a", "b")}) == 3


def test_they_are_models_that_share_one(engine: Engine, adapters: Adapters) -> None:
    assert ([*engine.models], [*engine.lanes]) == ([*NAMES], ["base"])
    infos = [model.info for model in engine.models.values()]
    assert [info.adapter_of for info in infos] == ["", "base", "base", "base"]
    assert len({info.revision for info in infos}) == len(infos), "or answers of one would be stored as another's"
    assert len({info.text_revision for info in infos}) == 1
    assert all(info.parameters > infos[0].parameters for info in infos[1:])
    assert len({id(model.sleeper) for model in engine.models.values()}) == 1
    assert engine.models["a"].stats().steps == engine.models["base"].stats().steps
    with pytest.raises(UnknownModel, match="'d' is not loaded; loaded are a, b, base, c"):
        engine.submit(Request("r", "d", (1,)), lambda _: None)
    twice = Engine(SMALL)
    with pytest.raises(ValueError, match="a model named 'a' is attached already"):
        twice.load(ModelSpec("a", adapters.base, adapters={"a": adapters.folders["a"]}))


async def test_scores_probes_and_drafts_are_those_of_merged_checkpoints(engine: Engine, merged: Engine) -> None:
    prompt, rest = tuple(range(40, 59)), tuple(range(90, 99))
    for name in NAMES[1:]:
        ours, theirs = engine.models[name], merged.models[name]
        scored, wanted = await asyncio.gather(ours.score("s", prompt, rest), theirs.score("s", prompt, rest))
        assert [s.token_id for s in scored.tokens] == [*rest]
        torch.testing.assert_close(
            [s.logprob for s in scored.tokens], [s.logprob for s in wanted.tokens], rtol=0, atol=1e-4
        )
        probed, state = await asyncio.gather(ours.probe("p", prompt), theirs.probe("p", prompt))
        torch.testing.assert_close(probed.state, state.state, rtol=0, atol=1e-4)
        ((answer, _),) = ask(merged, [(name, prompt)])
        tokens: list[int] = []
        async for delta in ours.generate("d", prompt, SIX, draft=answer):
            tokens.extend(delta.token_ids)
        assert tuple(tokens) == answer


async def test_they_sleep_and_wake_with_their_model(adapters: Adapters, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    for file in adapters.folders["a"].iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    engine = started(Adapters(adapters.base, {"a": folder}), SMALL)
    try:
        prompt, sleeper = (7, 8, 9), engine.models["a"].sleeper
        assert sleeper is not None
        before = ask(engine, [("a", prompt)])[0][0]
        await asyncio.wrap_future(sleeper.sleep())
        assert ask(engine, [("a", prompt)])[0][0] == before
        await asyncio.wrap_future(sleeper.sleep())
        config = json.loads((folder / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 1}))
        assert ask(engine, [("a", prompt)])[0][0] == before, "what was trained meanwhile is another adapter"
    finally:
        engine.stop()


def test_steps_on_rows_are_recorded_with_adapters_and_without(adapters: Adapters) -> None:
    """A recorded step computes whatever adapters its rows have when it is launched again."""
    decoder = load_decoder(adapters.base, ReferenceKernels(), dtype="float32", adapters=adapters.folders).decoder
    store, recorded = KVStore(decoder.spec, 33, 4, decoder.dtype, torch.device("cpu")), list[int]()

    def record(step: Callable[[], None]) -> Callable[[], None]:
        recorded.append(1)
        return step

    ahead = AheadDecoder(decoder, store, ReferenceRows(), most=2, longest=32, record=record)
    runner = Runner(decoder, store, ahead)
    tables = KVTables(32, 4, b"key")
    with torch.inference_mode():
        while runner.prepare(idle=True):
            pass
        assert (len(recorded), runner.unrecorded) == (4, 0), "two sizes, twice"

        def run(owners: Sequence[int], steps: int) -> list[list[int]]:
            sequences = []
            for number in owners:
                request = Request(f"r{next(_serial)}", "m", (9,), SIX)
                sequence = EngineSequence(
                    request, 0, 0, [9], 32, frozenset(), tables.table(""), noise=0, adapter=number
                )
                assert tables.extend(sequence.table, steps + 2)
                sequence.admit(0)
                sequences.append(sequence)
            chunks = [Chunk(sequence, 0, 1) for sequence in sequences]
            assert runner.repeats(chunks)
            found = runner.run(chunks, steps + 1, Interrupt(), repeats=True)
            for sequence in sequences:
                sequence.done = True
                tables.release(sequence.table)
            return [list(each.tokens) for each in found if isinstance(each, Sampled)]

        own = {number: run([number], 5)[0] for number in range(4)}
        assert len(set(map(tuple, own.values()))) == 4
        for owners in ((1, 2), (2, 0), (0, 0), (3, 1), (0, 3)):
            assert run(owners, 5) == [own[number] for number in owners]

        assert isinstance(decoder, AdaptedDecoder)
        loaded = decoder.loaded
        runner.tune(decoder.tuned_by({1: loaded[3], 4: loaded[1]}))
        assert runner.unrecorded == 2, "those without adapters are as they were"
        while runner.prepare(idle=True):
            pass
        assert len(recorded) == 6
        assert [run([number], 5)[0] for number in (0, 1, 4)] == [own[number] for number in (0, 3, 1)]
        assert run((1, 4), 5) == [own[3], own[1]]
        runner.tune(None)
        assert (runner.unrecorded, run((0, 0), 5)) == (0, [own[0], own[0]])
