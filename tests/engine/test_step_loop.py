"""Faults and endings: cancellation, failing steps, broken logits, draining."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import MakeCheckpoint, write_tokenizer

from headgate.engine.engine import Engine
from headgate.engine.errors import EngineStopped, PromptTooLong, UnknownModel
from headgate.engine.front.local import LocalModel
from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.interface import Kernels
from headgate.engine.kv.tables import KVTables
from headgate.engine.lane import Lane
from headgate.engine.loop import StepLoop
from headgate.engine.request import Delta, Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduler import Scheduler
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.scheduling.limits import Limits
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.engine.stepping.found import Sampled
from headgate.engine.stepping.inputs import Interrupt

GREEDY = SamplingParams(temperature=0.0, max_tokens=400, ignore_eos=True)


@pytest.fixture
def engine(tiny_checkpoint: Path) -> Iterator[Engine]:
    engine = Engine(EngineSettings())
    engine.load(ModelSpec("m", tiny_checkpoint), ModelSpec("other", tiny_checkpoint, weights="int8"))
    engine.start()
    yield engine
    engine.stop()


class Inbox:
    """Collects deltas; `next` waits for one."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Delta] = queue.SimpleQueue()

    def __call__(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            self._queue.put(delta)

    def next(self) -> Delta:
        return self._queue.get(timeout=60)

    def rest(self) -> Delta:
        """The last delta of a request of one choice."""
        while True:
            delta = self.next()
            if delta.finish is not None:
                return delta


def assert_idle(engine: Engine, model: str = "m") -> None:
    stats = engine.models[model].stats()
    assert (stats.running, stats.waiting, stats.kv_blocks_used) == (0, 0, 0)


class Steps:
    """Stands in for a runner: in a run of steps it goes on until somebody interrupts."""

    forward_seconds = 0.0
    unrecorded = kv_bytes = 0
    seeing = None

    def __init__(self) -> None:
        self.long = threading.Event()

    def ahead(self, chunks: Sequence[Chunk]) -> int:  # noqa: ARG002
        return 0

    def repeats(self, chunks: Sequence[Chunk]) -> bool:
        return all(chunk.samples for chunk in chunks)

    def prepare(self, *, idle: bool) -> bool:  # noqa: ARG002
        return False

    def run(self, chunks: Sequence[Chunk], most: int, interrupt: Interrupt, *, repeats: bool) -> list[Sampled]:
        assert repeats == self.repeats(chunks)
        if most > 1:
            self.long.set()
        steps = 1
        deadline = time.monotonic() + 60
        while steps < most and not interrupt.flag[0]:
            steps += time.monotonic() > deadline
        return [Sampled(chunk.sequence, [1] * steps) for chunk in chunks]

    def discard(self, blocks: Sequence[int], pages: Sequence[int]) -> None:
        pass


@pytest.mark.parametrize("what", ["cancel", "submit", "stop"])
def test_a_run_of_steps_ends_after_the_step_in_which_somebody_wants_something(what: str) -> None:
    steps, inbox = Steps(), Inbox()
    loop = StepLoop()
    scheduler = Scheduler(KVTables(100, 16, b"key"), Limits())
    lane = Lane(scheduler, steps, context_length=1000, eos_ids=(), clock=itertools.count(0.0, 1e-6).__next__)  # type: ignore[arg-type]
    loop.attach("m", lane)
    loop.start()
    loop.submit(Request("r", "m", (5, 6, 7), GREEDY), inbox)
    assert steps.long.wait(60)
    if what == "cancel":
        loop.cancel("r")
        assert len(inbox.rest().token_ids) == 0
    elif what == "submit":
        other = Inbox()
        loop.submit(Request("s", "m", (5, 6, 7), SamplingParams(max_tokens=1)), other)
        assert other.rest().token_ids == (1,)
    loop.stop()
    assert lane.idle


def test_a_cancelled_request_ends_with_what_it_has(engine: Engine) -> None:
    inbox = Inbox()
    engine.submit(Request("r", "m", (5, 6, 7), replace(GREEDY, max_tokens=10**6)), inbox)
    inbox.next()
    engine.cancel("r")
    last = inbox.rest()
    assert last.finish is not None
    assert last.finish.reason == "cancelled"
    assert_idle(engine)
    engine.cancel("r")
    engine.cancel("never seen")


def test_closing_the_stream_frees_its_blocks(engine: Engine) -> None:
    async def leave_early(model: LocalModel) -> None:
        stream = model.generate("r", (5, 6, 7), GREEDY, n=3)
        async for _ in stream:
            break
        assert model.stats().kv_blocks_used > 0
        await stream.aclose()
        # The cancellation is ahead of this request in the engine's inbox.
        async for _ in model.generate("r", (9, 9), SamplingParams(temperature=0.0, max_tokens=1)):
            pass

    asyncio.run(leave_early(engine.models["m"]))
    assert_idle(engine)


def test_a_failing_step_fails_its_requests_only(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox, bystander = Inbox(), Inbox()
    prompt = tuple(range(3, 60))
    kernels = type(choose_kernels("auto", engine.device).kernels)
    healthy = kernels.swiglu

    def broken(self: Kernels, gate_up: torch.Tensor, into: object) -> torch.Tensor:
        if gate_up.shape[0] >= len(prompt):
            raise RuntimeError("an illegal memory access")
        return healthy(self, gate_up, into)

    engine.submit(Request("long", "other", (1, 2, 3), GREEDY), bystander)
    bystander.next()
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "swiglu", broken)
        engine.submit(Request("a", "m", prompt, GREEDY), inbox)
        failed = inbox.rest().finish
    assert failed is not None
    assert (failed.reason, failed.error) == ("error", "RuntimeError: an illegal memory access")
    assert_idle(engine)
    # The engine goes on: the other model's request, and the same one again, which finds nothing cached.
    engine.submit(Request("b", "m", prompt, SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)), inbox)
    again, other = inbox.rest().finish, bystander.rest().finish
    assert again is not None
    assert other is not None
    assert (again.reason, again.cached_tokens, other.reason) == ("length", 0, "length")
    assert engine.models["m"].stats().failed_steps == 1


def test_broken_logits_end_one_request_and_spare_its_neighbours(
    make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    source = make_checkpoint("llama2")
    tensors = load_file(source / "model.safetensors")
    tensors["model.embed_tokens.weight"][300] = float("nan")
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((source / "config.json").read_text())
    write_tokenizer(tmp_path)
    engine = Engine(EngineSettings(kv_bytes=3 << 18))
    engine.load(ModelSpec("m", tmp_path))
    engine.start()
    try:
        poisoned, sound = Inbox(), Inbox()
        few = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
        for number in range(4):
            # Blocks go round: the sound requests get those that held NaN, and are attended in one padded call.
            engine.submit(Request(f"bad{number}", "m", (*[7] * 100, 300, *[8] * 60), few), poisoned)
            bad = poisoned.rest().finish
            assert bad is not None
            assert (bad.reason, bad.error) == ("error", "the model's logits are not finite")
            for length in (90, 41, 9):
                engine.submit(Request(f"good{number}-{length}", "m", (number + 3,) * length, few), sound)
            for _ in range(3):
                good = sound.rest().finish
                assert good is not None
                assert (good.reason, good.error) == ("length", None)
        assert_idle(engine)
    finally:
        engine.stop()


def test_background_work_waits_for_the_users_of_every_model(engine: Engine) -> None:
    inbox = Inbox()
    long = SamplingParams(temperature=0.0, max_tokens=300, ignore_eos=True)
    few = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)
    engine.submit(Request("user", "m", (5, 6, 7), long), inbox)
    for model in ("m", "other"):
        engine.submit(Request(f"audit-{model}", model, (8, 9), few, priority="background"), inbox)
    arrived = []
    while len([d for d in arrived if d.finish is not None]) < 3:
        arrived.append(inbox.next())
    ended = next(at for at, d in enumerate(arrived) if d.request_id == "user" and d.finish is not None)
    assert all(d.request_id == "user" for d in arrived[:ended])
    for delta in arrived[ended + 1 :]:
        if delta.finish is not None:
            assert (delta.finish.reason, delta.finish.completion_tokens) == ("length", 3)
    stats = engine.models["other"].stats()
    assert (stats.background, stats.steps) == (0, 3)
    assert 0 < stats.background_seconds <= stats.step_seconds
    assert 0 < stats.forward_seconds < stats.step_seconds
    assert_idle(engine)


def test_stop_does_not_wait_for_background_work(tiny_checkpoint: Path) -> None:
    engine = Engine(EngineSettings())
    engine.load(ModelSpec("m", tiny_checkpoint))
    engine.start()
    inbox = Inbox()
    engine.submit(Request("audit", "m", (5, 6), GREEDY, priority="background"), inbox)
    inbox.next()
    engine.stop(deadline_s=60.0)
    last = inbox.rest().finish
    assert last is not None
    assert last.reason == "cancelled"


def test_what_cannot_be_served_is_refused(engine: Engine, tiny_checkpoint: Path) -> None:
    inbox = Inbox()
    with pytest.raises(UnknownModel, match="'none' is not loaded; loaded are m, other"):
        engine.submit(Request("r", "none", (1,)), inbox)
    with pytest.raises(PromptTooLong, match="600 tokens; the model takes at most 512"):
        engine.submit(Request("r", "m", (1,) * 600), inbox)
    with pytest.raises(ValueError, match="no tokens"):
        engine.submit(Request("r", "m", ()), inbox)
    stopped = Engine(EngineSettings())
    stopped.load(ModelSpec("m", tiny_checkpoint))
    with pytest.raises(EngineStopped):
        stopped.submit(Request("r", "m", (1,)), inbox)


def test_stop_lets_requests_finish_then_cancels(tiny_checkpoint: Path) -> None:
    for deadline_s, reason in ((60.0, "length"), (0.0, "cancelled")):
        engine = Engine(EngineSettings())
        engine.load(ModelSpec("m", tiny_checkpoint))
        engine.start()
        assert engine.ready
        inbox = Inbox()
        engine.submit(Request("r", "m", (5, 6), GREEDY), inbox)
        inbox.next()
        engine.stop(deadline_s=deadline_s)
        assert not engine.ready
        last = inbox.rest().finish
        assert last is not None
        assert last.reason == reason
        with pytest.raises(EngineStopped):
            engine.submit(Request("s", "m", (5, 6)), inbox)


def test_two_models_share_the_kv_budget(tiny_checkpoint: Path) -> None:
    engine = Engine(EngineSettings(kv_bytes=1 << 20, max_running=500, max_step_tokens=512))
    engine.load(ModelSpec("a", tiny_checkpoint), ModelSpec("b", tiny_checkpoint, dtype="bfloat16"))
    blocks = {name: model.stats().kv_blocks_total for name, model in engine.models.items()}
    used = sum(blocks[name] * 16 * model.info.kv_bytes_per_token for name, model in engine.models.items())
    assert blocks["a"] == blocks["b"]
    assert 0.9 * (1 << 20) < used <= 1 << 20


def test_who_has_just_asked_finds_it_among_what_waits(engine: Engine) -> None:
    listening, go_on = threading.Event(), threading.Event()

    def hold(_: Sequence[Delta]) -> None:
        listening.set()
        assert go_on.wait(20)

    ended: queue.SimpleQueue[Delta] = queue.SimpleQueue()

    def post(deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            ended.put(delta)

    engine.submit(Request("first", "m", (5, 6, 7), replace(GREEDY, max_tokens=1)), hold)
    assert listening.wait(20)
    # The step thread stands still: what is submitted now no lane has seen.
    try:
        for at in range(2):
            engine.submit(Request(f"r{at}", "m", (5,) * 100, replace(GREEDY, max_tokens=1), n=2), post)
        engine.submit(Request("b", "m", (5,) * 100, replace(GREEDY, max_tokens=1), priority="background"), post)
        stats, others = engine.models["m"].stats(), engine.models["other"].stats()
    finally:
        go_on.set()
    assert (stats.waiting, stats.pending_tokens) == (4, 200)
    assert (others.waiting, others.pending_tokens) == (0, 0)
    finished = 0
    while finished < 5:
        finished += ended.get(timeout=20).finish is not None
    stats = engine.models["m"].stats()
    assert (stats.running, stats.waiting, stats.pending_tokens) == (0, 0, 0)


def test_two_models_may_be_asked_under_one_id_at_a_time(engine: Engine) -> None:
    async def ask(name: str) -> int:
        params = replace(GREEDY, max_tokens=30)
        return sum([len(d.token_ids) async for d in engine.models[name].generate("same", (5, 6, 7), params)])

    async def both() -> list[int]:
        return await asyncio.gather(ask("m"), ask("other"))

    assert asyncio.run(asyncio.wait_for(both(), 60)) == [30, 30]
