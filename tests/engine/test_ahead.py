"""Decoding a step ahead of the host: answers are those of one step after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_site import StartLine, serving

from headgate.engine.device_steps.ahead import AheadDecoder
from headgate.engine.engine import Engine
from headgate.engine.front.local import LocalModel
from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.device_rows import POSITION, RowState
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kernels.reference_rows import ReferenceRows
from headgate.engine.kv.store import KVStore
from headgate.engine.models.loader import load_decoder
from headgate.engine.runner import Runner
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings

CPU = torch.device("cpu")
AHEAD = EngineSettings(device="cpu", kernels="reference", block_size=4, decode_ahead=True)
GREEDY = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
WARM = SamplingParams(temperature=0.9, max_tokens=20, ignore_eos=True, seed=5)
Asked = tuple[tuple[int, ...], SamplingParams, int, tuple[str, ...]]


async def answer(model: LocalModel, name: int, asked: Asked) -> list[Any]:
    """Of each choice: tokens, text, log-probabilities to four places, why it ended and after how many tokens."""
    prompt, sampling, n, stop = asked
    tokens: list[list[int]] = [[] for _ in range(n)]
    texts, logprobs, ends = [""] * n, [list[float]() for _ in range(n)], [("", 0)] * n
    async for delta in model.generate(str(name), prompt, sampling, n=n, stop=stop):
        tokens[delta.index].extend(delta.token_ids)
        texts[delta.index] += delta.text
        logprobs[delta.index].extend(round(entry.logprob, 4) for entry in delta.logprobs)
        if delta.finish is not None:
            ends[delta.index] = delta.finish.reason, delta.finish.completion_tokens
    return [*zip(tokens, texts, logprobs, ends, strict=True)]


def answers(model: LocalModel, asked: list[Asked], line: StartLine | None = None) -> list[list[Any]]:
    async def together() -> list[list[Any]]:
        askers = [answer(model, name, one) for name, one in enumerate(asked)]
        return await (asyncio.gather(*askers) if line is None else line.together(model, askers))

    return asyncio.run(together())


def assert_all_is_given_back(model: LocalModel) -> None:
    stats = model.stats()
    assert (stats.running, stats.waiting, stats.kv_blocks_used) == (0, 0, 0)


def questions(text: str) -> list[Asked]:
    """All that decides about tokens, or ends them; `text` is in what the first of them gets."""
    prompt = tuple(range(5, 30))
    return [
        (prompt, GREEDY, 1, ()),
        (prompt, GREEDY, 1, (text,)),
        ((7, 8, 9), replace(GREEDY, max_tokens=1), 1, ()),
        ((7, 8, 9), replace(GREEDY, max_tokens=2), 1, ()),
        ((40, 41), replace(WARM, top_k=9, top_p=0.8, max_tokens=33), 3, ()),
        ((40, 41, 42), replace(WARM, min_p=0.05, logprobs=0, max_tokens=11), 1, ()),
        (prompt, replace(WARM, top_p=0.7, frequency_penalty=1.5, presence_penalty=-0.5), 2, ()),
        (prompt, replace(GREEDY, repetition_penalty=1.7, logit_bias=((17, 2.5), (17, 1.0), (60, -4.0))), 1, ()),
        (prompt, replace(WARM, repetition_penalty=1e-40, max_tokens=9), 1, ()),
        (prompt, replace(GREEDY, stop_token_ids=tuple(range(0, 300, 7))), 1, ()),
        (prompt, replace(GREEDY, begin_suppress_tokens=tuple(range(0, 300, 3))), 1, ()),
    ]


@pytest.fixture(scope="module")
def asked_and_told(tiny_checkpoint: Path) -> tuple[list[Asked], list[list[Any]]]:
    """What is asked, and what one step after the other makes of it."""
    with serving(tiny_checkpoint, replace(AHEAD, decode_ahead=False)) as plain:
        [[(_, text, *_)]] = answers(plain, questions("?")[:1])
        asked = questions(text[len(text) // 2 :][:3])
        return asked, answers(plain, asked)


@pytest.mark.parametrize(
    ("settings", "blocks"),
    [(AHEAD, None), (replace(AHEAD, max_running=3, max_step_tokens=7), None), (replace(AHEAD, max_running=6), 24)],
    ids=["all at once", "in turns", "preempted"],
)
def test_answers_are_the_same(
    settings: EngineSettings, blocks: int | None, tiny_checkpoint: Path, asked_and_told: tuple[list[Asked], list[Any]]
) -> None:
    asked, told = asked_and_told
    line = StartLine()
    with serving(tiny_checkpoint, settings, blocks, clock=line) as model:
        assert answers(model, asked, line) == told
        assert_all_is_given_back(model)
        # Rows, blocks and counts that others had.
        assert answers(model, asked[::-1], line) == told[::-1]
        assert_all_is_given_back(model)
        assert (model.stats().preemptions > 0) == (blocks is not None)


def test_answers_of_many_are_the_same(tiny_checkpoint: Path, asked_and_told: tuple[list[Asked], list[Any]]) -> None:
    """Of whom two steps are under way while nobody has read the one before."""
    asked, told = asked_and_told
    line, times = StartLine(), 8
    with serving(tiny_checkpoint, replace(AHEAD, max_running=128), clock=line) as model:
        assert answers(model, asked * times, line) == told * times
        assert_all_is_given_back(model)


def test_who_reports_likely_tokens_or_has_many_biases_is_served_beside_the_others(
    tiny_checkpoint: Path, asked_and_told: tuple[list[Asked], list[Any]]
) -> None:
    asked, told = asked_and_told
    many = tuple((token, -1.0) for token in range(100, 200))
    others: list[Asked] = [((3, 4), replace(WARM, logprobs=2), 1, ()), ((3, 4), replace(WARM, logit_bias=many), 1, ())]
    with serving(tiny_checkpoint, replace(AHEAD, decode_ahead=False)) as plain:
        expected = answers(plain, others)
    with serving(tiny_checkpoint, AHEAD) as model:
        assert answers(model, [*asked, *others]) == [*told, *expected]


def test_who_leaves_gives_all_back(tiny_checkpoint: Path, asked_and_told: tuple[list[Asked], list[Any]]) -> None:
    async def leave_early(model: LocalModel) -> None:
        stream = model.generate("leaves", (5, 6, 7), replace(GREEDY, max_tokens=400), n=3)
        seen = 0
        async for delta in stream:
            seen += len(delta.token_ids)
            if seen > 9:
                break
        await stream.aclose()

    asked, told = asked_and_told
    with serving(tiny_checkpoint, AHEAD) as model:
        asyncio.run(leave_early(model))
        assert answers(model, asked) == told
        assert_all_is_given_back(model)


def fail_some(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int, int], bool], error: Exception) -> list[int]:
    """Has steps raise, told by their number from 1 on and their rows; gives the rows of all there were so far."""
    healthy, steps = ReferenceRows.choose, []

    def choose(self: ReferenceRows, logits: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        steps.append(len(logits))
        if fails(len(steps), len(logits)):
            raise error
        return healthy(self, logits, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(ReferenceRows, "choose", choose)
    return steps


def test_a_step_that_fails_fails_those_in_it(
    tiny_checkpoint: Path, asked_and_told: tuple[list[Asked], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, told = asked_and_told
    with serving(tiny_checkpoint, AHEAD) as model:
        steps = fail_some(monkeypatch, lambda step, _: step == 7, RuntimeError("an illegal memory access"))
        (failed,) = answers(model, [((5, 6, 7), GREEDY, 3, ())])
        assert [reason for *_, (reason, _) in failed] == ["error"] * 3
        assert len(steps) == 7
        assert_all_is_given_back(model)
        assert answers(model, asked) == told


def test_a_device_that_refuses_all_further_work_ends_each_request(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise RuntimeError("an illegal memory access")

    async def ask(model: LocalModel) -> list[Any]:
        async with asyncio.timeout(60):  # or those who wait for a thread that has ended would wait for ever
            return await asyncio.gather(
                answer(model, 0, ((5, 6, 7), GREEDY, 2, ())), answer(model, 1, ((5,), WARM, 1, ()))
            )

    with serving(tiny_checkpoint, AHEAD) as model:
        fail_some(monkeypatch, lambda *_: True, RuntimeError("an illegal memory access"))
        monkeypatch.setattr(KVStore, "clear", gone)
        for _ in range(2):
            failed = asyncio.run(ask(model))
            assert [reason for choices in failed for *_, (reason, _) in choices] == ["error"] * 3
        assert_all_is_given_back(model)


def test_steps_that_do_not_fit_the_memory_change_no_answer(
    tiny_checkpoint: Path, asked_and_told: tuple[list[Asked], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, told = asked_and_told
    with serving(tiny_checkpoint, AHEAD) as model:
        fail_some(
            monkeypatch, lambda step, rows: step % 7 == 0 and rows > 1, torch.OutOfMemoryError("CUDA out of memory")
        )
        assert answers(model, asked) == told
        assert model.stats().short_steps > 0
        assert_all_is_given_back(model)


def test_a_sequence_without_a_next_token_fails_by_itself(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = ReferenceRows.choose

    def broken(
        self: ReferenceRows, logits: torch.Tensor, state: RowState, order: torch.Tensor, keys: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        sick = state.numbers[order, POSITION] == 9
        return healthy(self, logits.masked_fill(sick.unsqueeze(1), float("nan")), state, order, keys)

    asked: list[Asked] = [((5, 6, 7), replace(GREEDY, max_tokens=7), 1, ()), ((5, 6, 7, 8), GREEDY, 1, ())]
    with serving(tiny_checkpoint, AHEAD) as model:
        whole, _ = answers(model, asked)
        monkeypatch.setattr(ReferenceRows, "choose", broken)
        sound, ((tokens, _, _, end),) = answers(model, asked)
        assert sound == whole
        assert end == ("error", len(tokens))
        assert len(tokens) == 6
        assert_all_is_given_back(model)


def test_it_is_refused_where_there_are_no_such_steps() -> None:
    native = choose_kernels("auto", CPU)
    if not native.native:
        pytest.skip(native.why)
    with pytest.raises(ValueError, match="decode_ahead is true, which the compiled kernels of the CPU do not know"):
        Engine(replace(AHEAD, kernels="auto"))


@pytest.fixture
def recording(tiny_checkpoint: Path) -> tuple[Runner, KVStore, list[int]]:
    """A runner whose steps can be recorded, which is noted."""
    decoder = load_decoder(tiny_checkpoint, ReferenceKernels(), dtype="float32", device=CPU).decoder
    store, recorded = KVStore(decoder.spec, 9, 4, decoder.dtype, CPU), list[int]()

    def record(step: Callable[[], None]) -> Callable[[], None]:
        step()
        recorded.append(1)
        return step

    ahead = AheadDecoder(decoder, store, ReferenceRows(), most=5, longest=32, record=record)
    return Runner(decoder, store, ahead), store, recorded


def test_what_nobody_waits_for_is_prepared_in_memory_that_nobody_has(
    recording: tuple[Runner, KVStore, list[int]],
) -> None:
    runner, store, recorded = recording
    with torch.inference_mode():
        assert not runner.prepare(idle=False)
        pieces = 0
        while runner.prepare(idle=True):
            pieces += 1
    assert (pieces, len(recorded), runner.unrecorded) == (1 + 4, 4, 0)
    spare = slice(8 * store.block_size, 9 * store.block_size)
    for layer in store.layers:
        for kept in (layer.keys, layer.values):
            assert kept[spare].abs().sum() > 0
            kept[spare] = 0
            assert not kept.any()


def test_what_fails_while_nobody_waits_harms_nobody(
    recording: tuple[Runner, KVStore, list[int]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> torch.Tensor:
        raise RuntimeError("out of resource: shared memory")

    runner, _, recorded = recording
    monkeypatch.setattr(ReferenceKernels, "paged_attention", fails)
    with torch.inference_mode():
        while runner.prepare(idle=True):
            pass
    assert not recorded
    assert caplog.text.count("out of resource: shared memory") >= 5
