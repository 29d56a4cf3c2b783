"""Recorded steps with prompts, in Triton's interpreter and by a graph that is emulated: tokens are plain torch's."""

from __future__ import annotations

import logging
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, repeat
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from adapter_files import write_adapter
from taped import taped
from tiny_models import ARCHITECTURES, COMMON, write_tokenizer
from triton_cases import in_the_interpreter, triton_kernels

from headgate.engine import engine as engines
from headgate.engine.assembling import assembly
from headgate.engine.device_steps.prompt_steps import PromptSteps, recorded_sizes, spare_blocks
from headgate.engine.engine import Engine
from headgate.engine.kernels.choice import KernelChoice
from headgate.engine.kernels.interface import AttentionBatch, Kernels, KVLayer
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kernels.standing import StepBound, StepNumbers
from headgate.engine.kernels.triton import attention
from headgate.engine.kernels.triton.plan import TritonPlan
from headgate.engine.kernels.triton.standing import TritonStandingStep
from headgate.engine.kv.store import KVStore
from headgate.engine.kv.tables import KVTables
from headgate.engine.lane import Lane
from headgate.engine.models.decoder import Decoder
from headgate.engine.models.loader import load_decoder
from headgate.engine.request import Delta, Request
from headgate.engine.runner import Runner
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduler import Scheduler
from headgate.engine.scheduling.limits import Limits
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.engine.stepping.inputs import StepInputs

pytestmark = in_the_interpreter

CPU = torch.device("cpu")
SIZE, BLOCKS, LONGEST = 4, 60, 70
LIMITS = Limits(max_running=3, max_step_tokens=7)
SIZES = [3, 6]
GREEDY = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
Recording = Callable[[Callable[[], None]], Callable[[], None]]


def prompt(count: int, first: int = 3) -> tuple[int, ...]:
    return tuple((7 * place + first) % 300 for place in range(count))


def asked(name: str, tokens: tuple[int, ...], **settings: Any) -> Request:
    return Request(name, "m", tokens, replace(GREEDY, **settings))


class Counted(PromptSteps):
    """Tells of each step its tokens, its sequences or wanted rows, and whether it was a recorded one."""

    seen: list[tuple[int, int, bool]]

    def hidden(self, inputs: StepInputs) -> torch.Tensor | None:
        found = super().hidden(inputs)
        self.seen.append((len(inputs.tokens), max(len(inputs.counts), len(inputs.rows)), found is not None))
        return found


class Site:
    """A lane that is stepped by hand."""

    def __init__(
        self,
        folder: Path,
        kernels: Kernels,
        *,
        kept: torch.dtype = torch.float32,
        adapters: Mapping[str, Path] | None = None,
        record: Recording = taped,
        sizes: Sequence[int] = SIZES,
        clock: Callable[[], float] = float,
    ) -> None:
        loaded = load_decoder(folder, kernels, dtype="float32", device=CPU, adapters=adapters)
        decoder = loaded.decoder
        self.store = KVStore(decoder.spec, BLOCKS + spare_blocks(sizes, SIZE) + 1, SIZE, kept, CPU)
        self.steps: Counted | None = None
        if recorded_sizes(decoder, 1000, SIZE, 20) == [16, 20]:
            assert isinstance(decoder, Decoder)
            self.steps = Counted(decoder, self.store, sizes, most=3, longest=LONGEST, record=record, clock=clock)
            self.steps.seen = []
        runner = Runner(decoder, self.store, prompts=self.steps)
        tables = KVTables(BLOCKS, SIZE, b"k")
        names = {name: name for name in adapters or {}}
        self.lane = Lane(
            Scheduler(tables, LIMITS), runner, context_length=LONGEST, eos_ids=(), clock=clock, adapters=names
        )
        with torch.inference_mode():
            while self.steps is not None and self.steps.record_one(idle=True):
                pass
        if self.steps is not None:
            self.untouched()

    def untouched(self) -> None:
        """No block that sequences may have was written to."""
        assert not any(tensor[: BLOCKS * SIZE].any() for tensor in self.store.tensors)

    @torch.inference_mode()
    def answers(self, *rounds: Sequence[Request]) -> dict[str, list[Any]]:
        """Tokens and scores, of requests that come together round by round, those of a round a step after another."""
        found: dict[str, list[Any]] = {}
        for requests in rounds:
            for request in requests:
                found[request.id] = []
                self.lane.submit(request, 0.0)
                self._step(found)
            while not self.lane.idle:
                self._step(found)
        return found

    def _step(self, found: dict[str, list[Any]]) -> None:
        for delta in self.lane.step():
            assert delta.finish is None or delta.finish.error is None
            scores = [(score.token_id, round(score.logprob, 2)) for score in delta.scores]
            found[delta.request_id].extend([*delta.token_ids, *scores])


def checkpoint(folder: Path, name: str, **extra: Any) -> Path:
    torch.manual_seed(0)
    kind, own = ARCHITECTURES[name]
    config = getattr(transformers, kind)(**{**COMMON, **own, "num_hidden_layers": 2, "num_key_value_heads": 1, **extra})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layer that has experts, of widths that take few programs."""
    narrow = {"hidden_size": 32, "num_attention_heads": 2, "moe_intermediate_size": 16, "num_experts": 4}
    folder = tmp_path_factory.mktemp("model")
    return checkpoint(folder, "qwen3-moe", mlp_only_layers=[], num_hidden_layers=1, **narrow)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("dense"), "qwen3", num_hidden_layers=1)


LENGTHS = [asked(str(length), prompt(length, length), max_tokens=1) for length in (2, 3, 4, 6, 7)]
MIXED = [
    asked("chunked", prompt(15)),  # in parts of a step
    asked("beside", prompt(5, 11), max_tokens=3),
    asked("drawn", prompt(3, 5), temperature=0.9, top_k=9, seed=3, max_tokens=2),
    replace(asked("scored", prompt(2, 9)), score=(7, 8)),
]
AGAIN = [asked("hit", (*prompt(15), 5, 6), max_tokens=1), asked("part", (*prompt(12), 9), max_tokens=1)]


def attending_kernels() -> Kernels:
    """Triton's attention, and plain torch for the rest: the interpreter takes a hundred times as long."""
    plain, kernels = ReferenceKernels(), triton_kernels()
    for name in ("linear", "enter", "rms_norm", "add_rms_norm", "swiglu", "feed_forward", "rotate_and_write"):
        setattr(kernels, name, getattr(plain, name))
    return kernels


def test_tokens_are_those_of_plain_torch(folder: Path) -> None:
    rounds = LENGTHS[-1:], [replace(MIXED[1], sampling=replace(GREEDY, max_tokens=1)), LENGTHS[2]]
    expected = Site(folder, ReferenceKernels()).answers(*rounds)
    site = Site(folder, triton_kernels(), sizes=[5])
    assert site.answers(*rounds) == expected
    assert site.steps is not None
    assert all(found == (tokens <= 5) for tokens, _, found in site.steps.seen)
    assert {tokens for tokens, *_ in site.steps.seen} >= {4, 5, 7}


@pytest.mark.parametrize(
    ("name", "kept", "extra"),
    [
        ("qwen3", torch.float32, {}),
        (
            "mistral",
            torch.int8,
            {"sliding_window": 7, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 1},
        ),
    ],
    ids=["head norms", "windows and an int8 cache"],
)
def test_so_are_those_of_other_models(name: str, kept: torch.dtype, extra: dict[str, Any], tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, name, **extra)
    rounds = *([request] for request in LENGTHS), MIXED, AGAIN
    expected = Site(folder, ReferenceKernels(), kept=kept).answers(*rounds)
    site = Site(folder, attending_kernels(), kept=kept)
    assert site.answers(*rounds) == expected
    assert site.steps is not None
    assert all(found == (tokens <= 6 and rows <= 3) for tokens, rows, found in site.steps.seen)
    assert {tokens for tokens, *_ in site.steps.seen} == set(range(1, 8))
    assert {rows for _, rows, found in site.steps.seen if found} >= {1, 3}


def test_rows_with_adapters_are_computed_one_by_one(dense: Path, tmp_path: Path) -> None:
    adapters = {"a": write_adapter(dense, tmp_path / "a", ("0.self_attn.q_proj", "0.mlp.gate_proj"))[0]}
    rounds = [replace(MIXED[1], model="a")], [replace(MIXED[1], id="plain")]
    expected = Site(dense, ReferenceKernels(), adapters=adapters).answers(*rounds)
    site = Site(dense, attending_kernels(), adapters=adapters)
    assert site.answers(*rounds) == expected
    assert site.steps is not None
    assert [found for *_, found in site.steps.seen] == [True] * 3


def test_an_engine_records_when_nobody_asks_and_decodes_a_step_ahead_of_that(
    dense: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings, used, done, ended = list[int](), list[bool](), threading.Event(), threading.Semaphore(0)
    tokens: dict[str, list[int]] = {request.id: [] for request in (*MIXED[:3], AGAIN[0])}

    def record(step: Callable[[], None]) -> Callable[[], None]:
        recordings.append(1)
        return taped(step)

    def arrive(deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            tokens[delta.request_id].extend(delta.token_ids)
            if delta.finish is not None:
                assert delta.finish.error is None
                ended.release()

    class Noted(PromptSteps):
        def hidden(self, inputs: StepInputs) -> torch.Tensor | None:
            found = super().hidden(inputs)
            used.append(found is not None)
            return found

        @property
        def unrecorded(self) -> int:
            left = super().unrecorded
            if not left:
                done.set()
            return left

    monkeypatch.setattr(engines, "choose_kernels", lambda *_: KernelChoice(attending_kernels(), True, "interpreted"))
    monkeypatch.setattr(assembly, "recorder", lambda _: record)
    monkeypatch.setattr(assembly, "PromptSteps", partial(Noted, clock=float))
    settings = EngineSettings(
        device="cpu",
        max_running=3,
        max_step_tokens=7,
        block_size=SIZE,
        kv_bytes=1 << 18,
        decode_ahead=True,
        record_prompts=True,
    )
    engine = Engine(settings)
    engine.load(ModelSpec("m", dense, dtype="float32", context_length=100))
    engine.start()
    try:
        assert done.wait(60.0)
        for request in MIXED[:3]:
            engine.submit(request, arrive)
        for _ in MIXED[:3]:
            ended.acquire()
        engine.submit(AGAIN[0], arrive)
        ended.acquire()
    finally:
        engine.stop()
    assert len(recordings) == 3 + 1
    assert used
    assert all(used)
    assert tokens == Site(dense, ReferenceKernels()).answers(MIXED[:3], AGAIN[:1])


class Frozen(TritonStandingStep):
    """Stays at the first step that it is told of."""

    placed = False

    def place(self, numbers: StepNumbers) -> bool:
        if not self.placed:
            self.placed = super().place(numbers)
        return self.placed


def idle(step: Callable[[], None]) -> Callable[[], None]:
    """A recording of nothing."""
    step()
    return lambda: None


def lacking(step: Callable[[], None]) -> Callable[[], None]:
    step()
    raise torch.OutOfMemoryError("there is no memory left")


@pytest.mark.parametrize(
    ("record", "frozen", "clock", "told"),
    [
        (idle, False, float, "what launching it kernel by kernel gives"),
        (taped, True, float, "a step of that length"),
        (lacking, False, float, "cannot be recorded"),
        (taped, False, map(pow, count(), repeat(0.5)).__next__, "is not recorded: 5 take"),
    ],
)
def test_what_is_not_right_or_no_sooner_is_not_used(
    record: Recording,
    frozen: bool,
    clock: Callable[[], float],
    told: str,
    dense: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernels = attending_kernels()
    if frozen:
        monkeypatch.setattr(kernels, "standing_step", Frozen)
    caplog.set_level(logging.INFO, "headgate.engine.device_steps.prompt_steps")
    site = Site(dense, kernels, record=record, clock=clock, sizes=[6])
    assert site.steps is not None
    assert site.steps.unrecorded == 0
    level = logging.ERROR if record is lacking else logging.INFO if clock is not float else logging.WARNING
    assert [entry.levelno for entry in caplog.records] == [level]
    assert told in caplog.text
    assert site.answers(MIXED[:2]) == Site(dense, ReferenceKernels()).answers(MIXED[:2])
    assert not any(found for *_, found in site.steps.seen)


@dataclass
class Numbers:
    tokens: array[int]
    positions: array[int]
    slots: array[int]
    rows: array[int]
    counts: list[int]
    contexts: list[int]
    tables: list[array[int]]


@pytest.mark.parametrize(("window", "kv_heads"), [(None, 1), (50, 4)])
def test_attention_of_many_tiles_and_parts_is_that_of_a_plan_of_its_own(window: int | None, kv_heads: int) -> None:
    draw = torch.Generator().manual_seed(0)
    bound = StepBound(tokens=48, sequences=4, blocks=60, table_blocks=90, block_size=4, spare=99)
    step = TritonStandingStep(bound, CPU)
    kept = KVLayer(*(torch.randn(400, kv_heads, 16, generator=draw) for _ in range(2)))
    sinks = torch.randn(4, generator=draw)
    for counts, contexts in (
        ([1, 38, 2, 1], [203, 41, 2, 66]),
        ([48], [53]),
        ([5, 3], [5, 140]),
        ([1, 1, 1], [1, 65, 129]),
    ):
        tables = [array("i", torch.randperm(99, generator=draw)[: -(-each // 4)].tolist()) for each in contexts]
        batch = AttentionBatch(counts, contexts, tables, torch.empty(0), 4)
        nothing = array("q", [0]) * sum(counts)
        assert step.place(Numbers(nothing, nothing, nothing, array("q", [0]), counts, contexts, tables))
        q = torch.randn(48, 4, 16, generator=draw)
        got = attention.paged_attention(q, kept, step.plan, window, sinks=sinks)
        wanted = attention.paged_attention(
            q[: sum(counts)].contiguous(), kept, TritonPlan.of(batch, CPU), window, sinks=sinks
        )
        torch.testing.assert_close(got[: sum(counts)], wanted)
        assert got.isfinite().all()  # what fills up is computed as well
        for tiles in (step.plan.tiles(4 // kv_heads, 128),):
            assert not tiles.arrivals.any()


def test_what_is_beyond_a_step_is_refused() -> None:
    bound = StepBound(tokens=8, sequences=2, blocks=4, table_blocks=5, block_size=4, spare=9)
    step, table = TritonStandingStep(bound, CPU), array("i", range(5))

    def placed(counts: list[int], contexts: list[int], rows: int = 1) -> bool:
        tokens = array("q", [1]) * sum(counts)
        return step.place(
            Numbers(tokens, tokens, tokens, array("q", [0]) * rows, counts, contexts, [table] * len(counts))
        )

    assert placed([8], [16], rows=2)
    assert step.tokens.tolist() == [1] * 8
    for beyond in (([9], [9]), ([1, 1, 1], [1, 1, 1]), ([1], [17]), ([1, 1], [12, 12])):
        assert not placed(*beyond)
    assert not placed([8], [8], rows=3)
    assert step.tokens.tolist() == [1] * 8
    assert placed([1], [20 - 4])
    assert step.slots.tolist() == [1, *[36] * 7]
