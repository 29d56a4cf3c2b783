"""Models that sleep: what they give back, who wakes them, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import gc
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from lane_memory import BLOCK_SIZE, MemoryModel, lane_of
from tiny_models import MakeCheckpoint, write_tokenizer

from headgate.engine.engine import Engine
from headgate.engine.errors import ModelBusy, WakeFailed
from headgate.engine.front.local import LocalModel
from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kv.store import KVStore
from headgate.engine.lanes.sleeper import Sleeper
from headgate.engine.loop import StepLoop
from headgate.engine.models.decoder import Decoder
from headgate.engine.models.loader import load_decoder
from headgate.engine.models.resting import Parked, storages
from headgate.engine.quant.linear import WeightFormat
from headgate.engine.request import Delta, Finish, Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec

BLOCKS = 20
WORDS = tuple(range(5, 105))
SIX = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)


async def answer(model: LocalModel, prompt: tuple[int, ...] = WORDS) -> tuple[list[int], Finish]:
    tokens: list[int] = []
    async for delta in model.generate("r", prompt, SIX):
        tokens.extend(delta.token_ids)
        if delta.finish is not None:
            finish = delta.finish
    return tokens, finish


def sleeper_of(model: LocalModel) -> Sleeper:
    assert model.sleeper is not None
    return model.sleeper


@pytest.fixture(params=[None, True], ids=["native", "ahead"])
def engine(tiny_checkpoint: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Two models that share the memory for keys and values, one of them quantised where kernels can."""
    kernels: Any = "auto" if request.param is None else "reference"
    engine = Engine(EngineSettings(device="cpu", kernels=kernels, decode_ahead=request.param, kv_bytes=1 << 23))
    engine.load(ModelSpec("m", tiny_checkpoint), ModelSpec("other", tiny_checkpoint, weights="int8"))
    engine.start()
    yield engine
    engine.stop()


async def test_a_model_wakes_for_whoever_asks_and_answers_as_before(engine: Engine) -> None:
    model, other = engine.models["m"], engine.models["other"]
    before, beside = await answer(model), await answer(other)
    assert (await answer(model))[1].cached_tokens == 96
    taken = model.stats()
    await asyncio.wrap_future(sleeper_of(model).sleep())
    slept = model.stats()
    assert (sleeper_of(model).stats.state, slept.kv_bytes) == ("asleep", 0)
    assert model.resident(WORDS, "") == 0
    assert (slept.steps, slept.forward_seconds) == (taken.steps, taken.forward_seconds), "counters go on"
    again = await answer(other)
    assert (again[0], again[1].cached_tokens) == (beside[0], 96), "nobody else feels it"
    after = await answer(model)
    assert (after[0], after[1].cached_tokens) == (before[0], 0), "the same weights, and nothing cached"
    assert (await answer(model))[1].cached_tokens == 96
    stats = sleeper_of(model).stats
    assert (stats.state, stats.sleeps, stats.wakes) == ("awake", 1, 1)
    assert stats.wake_seconds == stats.last_wake_s > 0
    assert (model.stats().kv_bytes, model.stats().steps > taken.steps) == (taken.kv_bytes, True)


async def test_a_model_that_is_wanted_does_not_sleep(engine: Engine) -> None:
    model = engine.models["m"]
    endless = SamplingParams(temperature=0.0, max_tokens=400, ignore_eos=True)
    stream = model.generate("r", WORDS, endless)
    await anext(stream)
    with pytest.raises(ModelBusy, match="'m' is wanted: 1 of its requests run, 0 wait"):
        await asyncio.wrap_future(sleeper_of(model).sleep())
    await stream.aclose()
    unwanted = asyncio.create_task(model.score("s", WORDS, WORDS * 3, priority="background"))
    await asyncio.sleep(0)
    await asyncio.wrap_future(sleeper_of(model).sleep())
    await asyncio.gather(unwanted, return_exceptions=True)
    assert sleeper_of(model).stats.state in ("asleep", "waking", "awake"), "a score that came late wakes it"
    await asyncio.wrap_future(sleeper_of(model).wake())
    assert sleeper_of(model).stats.state == "awake"


def resident() -> int:
    """Bytes of memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_what_a_sleeping_model_took_is_free(make_checkpoint: MakeCheckpoint, monkeypatch: Any) -> None:
    folder = make_checkpoint("qwen3", head_dim=256)
    write_tokenizer(folder)
    decoders: weakref.WeakSet[Decoder] = weakref.WeakSet()
    made = Decoder.__init__

    def noted(self: Decoder, *parts: Any) -> None:
        made(self, *parts)
        decoders.add(self)

    monkeypatch.setattr(Decoder, "__init__", noted)
    engine = Engine(EngineSettings(device="cpu", kv_bytes=1 << 28))
    engine.load(ModelSpec("m", folder, dtype="float32"), ModelSpec("other", folder, dtype="float32"))
    engine.start()
    gc.disable()
    try:
        model = engine.models["m"]
        for first in range(5):
            await answer(model, (first + 5,) * 500)
        used = 5 * 500 * model.info.kv_bytes_per_token
        before = resident()
        await asyncio.wrap_future(sleeper_of(model).sleep())
        freed = before - resident()
        assert freed > 0.8 * used > 20e6, f"{freed} of {used} bytes"
        assert len(decoders) == 1, "the weights of the other one are there"
        await answer(model)
        assert len(decoders) == 2
    finally:
        gc.enable()
        engine.stop()


async def test_a_checkpoint_that_was_changed_is_not_taken_for_the_same_model(
    make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    source, folder = make_checkpoint("qwen3"), tmp_path / "copy"
    folder.mkdir()
    for file in (f for f in source.iterdir() if f.is_file()):
        (folder / file.name).write_bytes(file.read_bytes())
    write_tokenizer(folder)
    engine = Engine(EngineSettings(device="cpu"))
    engine.load(ModelSpec("m", folder))
    engine.start()
    try:
        sleeper = sleeper_of(engine.models["m"])
        await asyncio.wrap_future(sleeper.sleep())
        (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
        await answer(engine.models["m"])
        await asyncio.wrap_future(sleeper.sleep())
        config = (folder / "config.json").read_text()
        (folder / "config.json").write_text(config.replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
        with pytest.raises(WakeFailed, match="the checkpoint has changed since the server started"):
            await asyncio.wrap_future(sleeper.wake())
        finish = (await answer(engine.models["m"]))[1]
        assert (finish.reason, finish.cause) == ("error", "asleep")
        (folder / "config.json").write_text(config)
        assert (await answer(engine.models["m"]))[1].reason == "length"
    finally:
        engine.stop()


class Bed:
    """A sleeper over a lane that computes nothing, whose step thread is the test."""

    def __init__(self) -> None:
        self.lane, self.scheduler, self.memory = lane_of(blocks=BLOCKS, context_length=32)
        self.calls: queue.SimpleQueue[Callable[[], list[Delta]]] = queue.SimpleQueue()
        self.failures: list[Exception] = []
        self.moves: list[str] = []
        self.sleeper = Sleeper(
            "m",
            self.lane,
            self,
            lambda _: MemoryModel(BLOCK_SIZE),  # type: ignore[arg-type, return-value]
            call=self.calls.put,
            device=nullcontext,
            clock=lambda: 0.0,
        )

    def leave(self) -> None:
        self.moves.append("leave")
        self._fail()

    def back(self) -> Any:
        self.moves.append("back")
        self._fail()

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    def turn(self) -> list[Delta]:
        """What the step thread does next: it waits for what is done beside it."""
        return self.calls.get(timeout=60)()

    def ask(self, name: str) -> None:
        self.lane.submit(Request(name, "m", (1, 2, 3), SamplingParams(max_tokens=2, ignore_eos=True)), 0.0)
        if self.lane.resting:
            self.sleeper.rouse()


def told(done: Future[None]) -> str:
    return "" if not done.done() else type(done.exception()).__name__


def test_who_comes_while_it_falls_asleep_wakes_it_again() -> None:
    bed = Bed()
    first, second = bed.sleeper.sleep(), bed.sleeper.sleep()
    bed.turn()
    bed.ask("early")
    woken = bed.sleeper.wake()
    states = [bed.sleeper.stats.state]
    for _ in range(4):
        bed.turn()
        states.append(bed.sleeper.stats.state)
    assert states == ["falling_asleep", "falling_asleep", "falling_asleep", "waking", "awake"] or states == [
        "falling_asleep", "falling_asleep", "waking", "waking", "awake",
    ]  # fmt: skip
    assert [told(done) for done in (first, second, woken)] == ["NoneType"] * 3
    while not bed.lane.idle:
        (delta, *_) = bed.lane.step()
    assert delta.finish is not None
    assert (delta.finish.reason, bed.moves) == ("length", ["leave", "back"])
    bed.lane.check()


def test_a_model_that_cannot_be_woken_says_so_and_can_be_later() -> None:
    bed = Bed()
    bed.sleeper.sleep()
    bed.turn(), bed.turn()
    bed.failures = [torch.OutOfMemoryError("CUDA out of memory")]
    woken = bed.sleeper.wake()
    bed.ask("in vain")
    ended = bed.turn() + bed.turn()
    assert [(d.finish.reason, d.finish.cause) for d in ended if d.finish] == [("error", "asleep")]
    assert str(woken.exception()) == "the model 'm' is asleep and cannot be woken: CUDA out of memory"
    assert bed.moves == ["leave", "back", "leave"], "what came back goes again"
    assert bed.sleeper.stats.state == "asleep"
    later = bed.sleeper.wake()
    bed.turn(), bed.turn()
    assert (told(later), bed.sleeper.stats.state) == ("NoneType", "awake")


async def test_a_model_that_gets_no_thread_to_wake_in_leaves_the_others_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeper = sleeper_of(engine.models["m"])
    await asyncio.wrap_future(sleeper.sleep())

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading.Thread, "start", start)
        woken = sleeper.wake()
        async with asyncio.timeout(20):
            with pytest.raises(WakeFailed, match="can't start new thread"):
                await asyncio.wrap_future(woken)
            finish = (await answer(engine.models["m"]))[1]
            assert (finish.reason, finish.cause) == ("error", "asleep")
            assert (await answer(engine.models["other"]))[1].reason == "length"
    assert (await answer(engine.models["m"]))[1].reason == "length"


def test_a_model_that_gets_no_thread_to_fall_asleep_in_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    bed, start = Bed(), threading.Thread.start

    def no_more(_thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    slept = bed.sleeper.sleep()
    bed.turn(), bed.turn(), bed.turn()
    assert str(slept.exception()) == "can't start new thread"
    assert (bed.moves, bed.sleeper.stats.state) == (["back"], "awake")


def test_weights_for_which_there_is_no_room_elsewhere_stay() -> None:
    bed = Bed()
    bed.failures = [MemoryError("no pinned memory")]
    slept = bed.sleeper.sleep()
    bed.turn(), bed.turn()
    bed.turn()
    assert (told(slept), bed.sleeper.stats.state) == ("MemoryError", "awake")
    assert (bed.sleeper.stats.sleeps, bed.scheduler.tables.free_blocks) == (0, BLOCKS)


def test_sleeping_lets_go_of_pinned_prompts_and_of_what_can_be_found() -> None:
    bed = Bed()
    bed.lane.submit(Request("pin", "m", (1,) * 12, tenant="a", priority="background", probe=True, pin=True), 0.0)
    while not bed.lane.idle:
        bed.lane.step()
    assert (bed.lane.stats.pinned_blocks, bed.lane.resident("a", (1,) * 13)) == (3, 12)
    bed.sleeper.sleep()
    bed.turn()
    assert (bed.lane.stats.pinned_blocks, bed.lane.resident("a", (1,) * 13)) == (0, 0)
    assert bed.scheduler.tables.free_blocks == BLOCKS
    bed.turn()


def test_a_model_does_not_sleep_over_answers_of_the_background() -> None:
    bed = Bed()
    for name in ("runs", "waits"):
        bed.lane.step()
        bed.lane.submit(Request(name, "m", (1, 2, 3), SIX, priority="background"), 0.0)
    bed.lane.submit(Request("pin", "m", (1,) * 12, priority="background", probe=True, pin=True), 0.0)
    bed.lane.submit(Request("score", "m", (1,), priority="background", score=(2,)), 0.0)
    refused = bed.sleeper.sleep()
    assert bed.turn() == []
    assert str(refused.exception()) == "the model 'm' is wanted: 1 of its requests run, 1 wait"
    bed.lane.cancel("runs", None), bed.lane.cancel("waits", None)
    bed.sleeper.sleep()
    assert {d.request_id: d.finish.reason for d in bed.turn() if d.finish} == {"pin": "cancelled", "score": "cancelled"}
    bed.turn()
    assert bed.sleeper.stats.state == "asleep"


@pytest.mark.parametrize("fmt", ["native", "int8", "int4"])
@pytest.mark.parametrize("name", ["qwen3", "qwen2-moe"])
def test_parked_weights_are_nowhere_else_and_come_back_bit_for_bit(
    make_checkpoint: MakeCheckpoint, name: str, fmt: WeightFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.ops, "onednn", None)  # no GPU has it: it keeps int8 in memory of its own
    decoder = load_decoder(make_checkpoint(name), ReferenceKernels(), dtype="bfloat16", fmt=fmt).decoder
    kept = sum(storage.nbytes() for storage in storages(decoder))
    assert kept >= decoder.weight_bytes
    before = logits(decoder)
    parked = Parked(decoder)
    parked.leave()
    parked.leave()
    assert not storages(decoder)
    assert parked.back() is decoder
    assert torch.equal(logits(decoder), before)
    assert sum(storage.nbytes() for storage in storages(decoder)) == kept


def test_weights_that_find_no_room_on_their_way_back_stay_parked(
    make_checkpoint: MakeCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = load_decoder(make_checkpoint("qwen3"), ReferenceKernels(), dtype="bfloat16").decoder
    before, parked, resize = logits(decoder), Parked(decoder), torch.UntypedStorage.resize_
    parked.leave()
    left = 5

    def full(storage: torch.UntypedStorage, size: int) -> Any:
        nonlocal left
        left -= size > 0
        if size and left < 0:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return resize(storage, size)

    with monkeypatch.context() as patch:
        patch.setattr(torch.UntypedStorage, "resize_", full)
        with pytest.raises(torch.OutOfMemoryError):
            parked.back()
    assert not storages(decoder)
    assert torch.equal(logits(parked.back()), before)


def logits(decoder: Decoder) -> torch.Tensor:
    tokens = torch.arange(8)
    store = KVStore(decoder.spec, 1, 16, decoder.dtype, decoder.device)
    batch = AttentionBatch([8], [8], [range(1)], tokens, 16)
    with torch.inference_mode():
        return decoder.forward(tokens + 5, tokens, batch, store.layers, tokens[-2:])


def test_the_step_thread_computes_on_the_device_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []

    def entered(device: torch.device) -> Any:
        chosen.append(device)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "device", entered)
    for device in (torch.device("cuda", 1), torch.device("cpu")):
        loop = StepLoop(device=device)
        loop.start()
        loop.stop()
    assert chosen == [torch.device("cuda", 1)]
