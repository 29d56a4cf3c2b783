"""Models some of whose layers have a window: these keep that much of each sequence, and no answer changes."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from adapter_files import write_adapter
from engine_site import StartLine
from greedy_oracle import likeliest
from lane_memory import lane_of
from tiny_models import COMMON, MakeCheckpoint, write_tokenizer

from headgate.engine.engine import Engine
from headgate.engine.front.local import LocalModel
from headgate.engine.kernels.cpu.kernels import CpuKernels, native_status
from headgate.engine.kernels.interface import AttentionBatch, Pages
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kv.budget import BlockBytes, divided
from headgate.engine.kv.kinds import kv_tables
from headgate.engine.kv.paged_tables import PagedTables
from headgate.engine.kv.store import KVStore
from headgate.engine.kv.window import Window, partial_window
from headgate.engine.models.loader import load_decoder
from headgate.engine.request import Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduling.limits import Limits
from headgate.engine.settings import EngineSettings, ModelSpec

STATUS = native_status()
NEW = 30
DRAWN = torch.randint(3, 320, (200,), generator=torch.Generator().manual_seed(7)).tolist()
# The second begins as the first does, the third ends where it is long past the window of both.
PROMPTS = [DRAWN[:150], [*DRAWN[:90], *DRAWN[100:130]], DRAWN[:7], DRAWN[:61]]
SMALL = EngineSettings(device="cpu", max_step_tokens=13, max_running=4, block_size=4, keep_quantized=False)
PAGES = 48
"""What four sequences take of a window of 24 tokens and a step, 12 of them each."""
WHOLE = EngineSettings(device="cpu", block_size=4, keep_quantized=False)
"""Where 64 sequences may run, and each block has a page."""


@contextmanager
def serving(
    folder: Path,
    settings: EngineSettings,
    blocks: int | None,
    caplog: pytest.LogCaptureFixture,
    *,
    clock: StartLine | None = None,
    name: str = "m",
    **spec: Any,
) -> Iterator[LocalModel]:
    """`blocks`: of all layers as many as the memory holds; the pages are PAGES then, else each layer keeps all.

    `name`: of the model or one of its adapters.
    """
    if blocks is not None:
        with serving(folder, settings, None, caplog, **spec) as model:
            settings = replace(settings, kv_bytes=blocks * settings.block_size * model.info.kv_bytes_per_token)
    engine = Engine(settings, **({} if clock is None else {"clock": clock}))
    with caplog.at_level(logging.INFO, "headgate.engine.assembling.assembly"):
        caplog.clear()
        engine.load(ModelSpec("m", folder, **{"dtype": "float32", "context_length": 512, **spec}))
        told = [record.getMessage() for record in caplog.records if "layers that see a window" in record.getMessage()]
    assert not told or settings.max_running < 64
    if blocks is not None:
        assert [line.split(" have ")[-1] for line in told] == [f"{PAGES} pages"]
    engine.start()
    try:
        yield engine.models[name]
    finally:
        engine.stop()


async def complete(model: LocalModel, prompt: list[int], n: int = 1, draft: tuple[int, ...] = ()) -> list[list[int]]:
    params = SamplingParams(temperature=0.0, max_tokens=NEW, ignore_eos=True)
    tokens: list[list[int]] = [[] for _ in range(n)]
    async for delta in model.generate("r", tuple(prompt), params, n=n, draft=draft):
        tokens[delta.index].extend(delta.token_ids)
    return tokens


def complete_all(model: LocalModel, n: int = 1) -> list[list[list[int]]]:
    async def together() -> list[list[list[int]]]:
        return await asyncio.gather(*(complete(model, prompt, n) for prompt in PROMPTS))

    return asyncio.run(together())


@pytest.fixture(scope="module", params=["gemma3", "gpt-oss"])
def folder(request: pytest.FixtureRequest, make_checkpoint: MakeCheckpoint) -> Path:
    found = make_checkpoint(request.param)
    write_tokenizer(found)
    return found


@pytest.mark.parametrize("kernels", ["auto", "reference"])
def test_answers_are_those_of_transformers(folder: Path, kernels: Any, caplog: pytest.LogCaptureFixture) -> None:
    with serving(folder, replace(SMALL, kernels=kernels), 64, caplog) as model:
        told = complete_all(model, 2)
        assert all(first == second for first, second in told)
        assert complete_all(model, 2) == told, "what was cached the first time is found in part"
        stats = model.stats()
        assert (stats.running, stats.waiting, stats.kv_blocks_used, stats.failed_steps) == (0, 0, 0, 0)
    oracle = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    answers = [first for first, _ in told]
    assert likeliest(oracle, PROMPTS, answers) == answers


@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        ({"weights": "int8"}, {}),
        ({"dtype": "bfloat16"}, {}),
        ({"weights": "int8"}, {"kv_dtype": "int8", "prefix_cache": False}),
    ],
    ids=["int8", "bfloat16", "int8 keys and values, nothing is cached"],
)
def test_the_step_in_one_call_gives_what_it_gives_with_all_keys_and_values(
    folder: Path, spec: dict[str, Any], changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(folder, replace(WHOLE, **changes), None, caplog, **spec) as model:
        wanted = complete_all(model)
    with serving(folder, replace(SMALL, **changes), 64, caplog, **spec) as model:
        for _ in range(2):
            assert complete_all(model) == wanted


def test_random_requests_get_the_same_as_alone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With prefixes in common, several choices, drafts, some who leave, and memory that takes preemptions."""
    drawn = random.Random(3)
    trunks = [[drawn.randrange(3, 320) for _ in range(120)] for _ in range(2)]
    prompts = []
    for _ in range(14):
        trunk, own = drawn.choice(trunks), drawn.randrange(1, 30)
        prompts.append([*trunk[: drawn.randrange(121)], *(drawn.randrange(3, 320) for _ in range(own))])

    async def expected(model: LocalModel) -> list[list[int]]:
        return [(await complete(model, prompt))[0] for prompt in prompts]

    with serving(folder, WHOLE, None, caplog, weights="int8") as model:
        alone = asyncio.run(expected(model))

    async def ask(model: LocalModel, number: int) -> None:
        params = SamplingParams(temperature=0.0, max_tokens=NEW, ignore_eos=True)
        n, leaves, edited = drawn.randrange(1, 4), drawn.random() < 0.3, [*alone[number]]
        edited[drawn.randrange(NEW)] = 3
        draft = tuple(edited) if drawn.random() < 0.5 else ()
        tokens: list[list[int]] = [[] for _ in range(n)]
        async for delta in model.generate(f"r{number}", tuple(prompts[number]), params, n=n, draft=draft):
            tokens[delta.index].extend(delta.token_ids)
            if leaves and sum(map(len, tokens)) > 20:
                break
        for own in tokens:
            assert own == alone[number][: len(own)]
            assert leaves or len(own) == NEW

    async def all_of_them(model: LocalModel) -> None:
        await asyncio.gather(*(ask(model, number) for number in range(len(prompts))))

    with serving(folder, SMALL, 49, caplog, weights="int8") as model:
        for _ in range(2):
            asyncio.run(all_of_them(model))
        stats = model.stats()
        assert (stats.running, stats.waiting, stats.kv_blocks_used, stats.failed_steps) == (0, 0, 0, 0)
        assert stats.prefix_hits > 0


def test_who_is_preempted_goes_on_as_before(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(folder, WHOLE, None, caplog) as model:
        wanted = complete_all(model)
    line = StartLine()
    with serving(folder, SMALL, 49, caplog, clock=line) as model:
        askers = [complete(model, prompt) for prompt in (*PROMPTS, *PROMPTS)]
        assert asyncio.run(line.together(model, askers)) == [*wanted, *wanted]
        assert model.stats().preemptions > 0


def test_a_conversation_goes_on_behind_what_is_cached(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(folder, SMALL, 64, caplog) as model:
        answer = asyncio.run(complete(model, PROMPTS[0]))[0]
        longer = [*PROMPTS[0], *answer, 5, 6, 7]
        assert model.resident(tuple(longer), "") == 176
        hits = model.stats().prefix_hits
        asyncio.run(complete(model, longer))
        assert model.stats().prefix_hits - hits == 176


def test_probes_look_at_their_whole_prompt(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    prompt = tuple(DRAWN[:182])

    async def state(model: LocalModel) -> list[float]:
        return [*(await model.probe("p", prompt)).state.tolist()]

    with serving(folder, WHOLE, None, caplog) as model:
        wanted = asyncio.run(state(model))
    with serving(folder, SMALL, 64, caplog) as model:
        assert asyncio.run(state(model)) == pytest.approx(wanted, abs=1e-5)
        assert model.resident(prompt, "") == 181, "an answer goes on from where it ended"


def test_scores_and_a_second_life_are_as_with_all_keys_and_values(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scores(model: LocalModel) -> list[float]:
        score = await model.score("s", tuple(DRAWN[:90]), tuple(DRAWN[90:140]))
        return [token.logprob for token in score.tokens]

    async def sleep_and_wake(model: LocalModel) -> None:
        assert model.sleeper is not None
        await asyncio.wrap_future(model.sleeper.sleep())
        assert model.stats().kv_bytes == 0
        await asyncio.wrap_future(model.sleeper.wake())

    with serving(folder, WHOLE, None, caplog, weights="int8") as model:
        wanted, answers = asyncio.run(scores(model)), complete_all(model)
    with serving(folder, SMALL, 64, caplog, weights="int8") as model:
        kept = model.stats().kv_bytes
        assert asyncio.run(scores(model)) == wanted
        asyncio.run(sleep_and_wake(model))
        assert model.resident(tuple(DRAWN[:90]), "") == 0
        assert complete_all(model) == answers
        assert model.stats().kv_bytes == kept


def test_rows_with_an_adapter_find_their_pages(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The model's own step is one call, which finds them itself; theirs is not."""
    adapter, _ = write_adapter(folder, tmp_path / "adapter", ("q_proj", "v_proj"))
    with serving(folder, WHOLE, None, caplog, name="a", weights="int8", adapters={"a": adapter}) as model:
        wanted = complete_all(model)
    with serving(folder, SMALL, 64, caplog, name="a", weights="int8", adapters={"a": adapter}) as model:
        assert complete_all(model) == wanted


def test_guests_have_pages_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(1)
    options: dict[str, Any] = {**COMMON, "sliding_window": 24, "num_hidden_layers": 4}
    transformers.AutoModelForCausalLM.from_config(transformers.Cohere2Config(**options)).save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    with serving(tmp_path, SMALL, 64, caplog) as model:
        told = [tokens for (tokens,) in complete_all(model)]
    oracle = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    assert likeliest(oracle, PROMPTS, told) == told


def test_the_same_memory_holds_longer_prompts(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Beside the pages there is room for blocks of the layers that see all."""
    with serving(folder, SMALL, 64, caplog) as model:
        assert model.stats().kv_blocks_total > 64
    with serving(folder, replace(SMALL, decode_ahead=True, kernels="reference"), None, caplog) as model:
        kept = model.stats().kv_blocks_total
        assert kept == 4 * 128, "what lies on the device is not told of pages"


def test_a_budget_never_holds_fewer_blocks_than_without_pages() -> None:
    plain, split = BlockBytes(34), BlockBytes(5, 29, 100)
    assert divided(34 * 60, models=[split], state=0, most_states=0) == (60, 0)
    assert divided(34 * 100 + 4, models=[split], state=0, most_states=0) == (100, 0)
    assert divided(34 * 100 + 5, models=[split], state=0, most_states=0) == (101, 0)
    assert divided(34 * 1000, models=[split], state=0, most_states=0) == ((34_000 - 2_900) // 5, 0)
    assert divided(34 * 2000, models=[split, plain], state=0, most_states=0) == ((68_000 - 2_900) // 39, 0)
    assert divided(33, models=[split], state=0, most_states=0) == (0, 0)
    assert divided(0, models=[split], state=0, most_states=0) == (0, 0)
    assert divided(1000, models=[BlockBytes(10)], state=100, most_states=8) == (50, 5)


def held(prompt: int) -> tuple[int, int]:
    """Most pages of 4 tokens in use while a prompt is read and continued, and those in use while it is continued."""
    lane, scheduler, _ = lane_of(
        Limits(max_step_tokens=16, max_running=2), 200, context_length=512, window=24, pages=40
    )
    asked = tuple(1 + i * i % 5 for i in range(prompt))
    lane.submit(Request("r", "m", asked, SamplingParams(max_tokens=20, ignore_eos=True)), 0.0)
    most = last = 0
    while not lane.idle:
        lane.step()
        lane.check()
        used = 40 - scheduler.tables.free[1]
        most, last = max(most, used), used or last
    return most, last


def test_a_long_context_takes_a_window_of_pages() -> None:
    assert held(400) == (12, 7)
    assert held(20) == (7, 7)


def test_a_prefix_is_found_as_far_as_the_pages_of_its_last_window_are_there() -> None:
    window, tokens = Window(6, 8, 4), [*range(40)]
    tables = PagedTables(window, 7, 40, 4, b"key")
    table = tables.table("")
    for computed in range(4, 41, 4):
        assert tables.extend(table, 40, computed)
        tables.publish(table, tokens, computed)
        tables.give_back(table, computed)
    assert (table.behind, tables.free) == (8, (30, 5))
    tables.release(table)
    assert tables.resident("", [*tokens, 1]) == 40
    assert tables.resident("", tokens[:29]) == 28, "pages that were given back are there still"
    assert tables.resident("", tokens[:17]) == 0, "and those before have had other owners"
    other = tables.table("")
    assert tables.attach_prefix(other, [*tokens, 1]) == 40
    assert (other.behind, len(other.blocks), tables.free) == (8, 10, (30, 5))
    tables.check([other])
    # Who computes it anew has what others find from then on, as nobody could go on behind the blocks that are there.
    again = tables.table("")
    assert tables.attach_prefix(again, tokens[:9]) == 0
    assert tables.extend(again, 9)
    tables.publish(again, tokens[:9], 8)
    assert tables.resident("", tokens[:9]) == 8
    tables.check([other, again])


def test_of_a_failed_sequence_the_pages_that_nobody_else_reads_are_wiped() -> None:
    """What it gave back may be what broke it."""
    tables, tokens = PagedTables(Window(6, 8, 4), 7, 12, 4, b"key"), [*range(24)]
    table = tables.table("")
    for computed in (8, 16, 20):
        assert tables.extend(table, 20, computed)
        tables.publish(table, tokens, computed)
        tables.give_back(table, computed)
    own = [*table.blocks]
    other = tables.table("")
    assert tables.attach_prefix(other, tokens[:13]) == 12
    read = {*other.pages}
    freed = tables.release(table, discard=True)
    assert sorted(freed) == own[3:]
    wiped = tables.unused_pages(freed)
    assert len({*wiped}) == 2
    assert not read & {*wiped}
    tables.check([other])
    assert tables.resident("", tokens) == 12


def test_wiped_are_blocks_of_the_layers_that_see_all_and_pages_of_the_others(folder: Path) -> None:
    decoder = load_decoder(folder, ReferenceKernels(), dtype="float32").decoder
    store = KVStore(decoder.spec, 9, 4, torch.float32, decoder.device, pages=5, context_length=512)
    assert {(layer.paged, len(layer.keys)) for layer in store.layers} == {(False, 36), (True, 20)}
    assert not store.outlined.paged
    for tensor in store.tensors:
        tensor.fill_(torch.nan)
    store.clear([7], [2, 4])
    store.clear_tokens([8, 0], [1, 3], [5, 1])
    for layer in store.layers:
        sound = layer.values.isfinite().flatten(1).all(1).nonzero().flatten().tolist()
        assert sound == ([5, 8, 9, 10, 11, 13, 16, 17, 18, 19] if layer.paged else [1, 28, 29, 30, 31, 33])


@pytest.mark.skipif(not STATUS.usable, reason=f"native kernels: {STATUS.why}")
@pytest.mark.parametrize(("pages", "raises"), [([1, 0], None), ([0, 2], IndexError), ([-1, 0], IndexError)])
def test_the_step_in_one_call_writes_to_no_page_that_is_not_there(
    folder: Path, pages: list[int], raises: type[Exception] | None
) -> None:
    decoder = load_decoder(folder, CpuKernels(), dtype="bfloat16").decoder
    assert decoder.decodes
    store = KVStore(decoder.spec, 4, 4, decoder.dtype, decoder.device, pages=2, context_length=512)
    tokens, nothing = torch.arange(5), torch.empty(0, dtype=torch.int64)
    batch = AttentionBatch([5], [5], [[0, 3]], nothing, 4, pages=Pages([pages], nothing))
    with nullcontext() if raises is None else pytest.raises(raises, match="block of sequence 0 is not below 2"):
        decoder.forward(tokens, nothing, batch, store.layers, torch.tensor([4]))
    for layer in store.layers:
        written = layer.keys.flatten(1).any(1).nonzero().flatten().tolist()
        assert written == ([] if raises else [0, 4, 5, 6, 7] if layer.paged else [0, 1, 2, 3, 12])


def test_a_cache_is_as_full_as_its_blocks_or_its_pages_whatever_is_fuller() -> None:
    # A prompt of 45 tokens has blocks for all of it, and when 40 of them are read the pages of the last six.
    for blocks, full in ((100, 2 / 14), (13, 12 / 13)):
        limits = Limits(max_step_tokens=8, max_running=2)
        lane, _, _ = lane_of(limits, blocks, context_length=blocks * 4, window=6, pages=14)
        lane.submit(Request("r", "m", (1,) * 45, SamplingParams(max_tokens=1)), 0.0)
        for _ in range(5):
            lane.step()
        assert lane.stats.kv_usage == full


def test_pinned_prompts_leave_pages_for_others() -> None:
    limits = Limits(max_step_tokens=8, max_running=2, pinned_share=0.5)
    lane, scheduler, _ = lane_of(limits, 100, context_length=100, window=6, pages=14)
    pin: dict[str, Any] = {"priority": "background", "probe": True, "pin": True}

    def reason(request: Request) -> str:
        lane.submit(request, 0.0)
        ends = []
        while not lane.idle:
            ends += [delta.finish.reason for delta in lane.step() if delta.finish is not None]
            lane.check()
        (told,) = ends
        return told

    # Each holds the two pages that its window reaches into, and seven may be held.
    prompts = [tuple(number + i % 3 for i in range(40)) for number in range(1, 5)]
    ends = [reason(Request(f"p{number}", "m", prompt, **pin)) for number, prompt in enumerate(prompts)]
    assert ends == ["stop", "stop", "stop", "length"]
    assert (lane.stats.pinned_blocks, scheduler.tables.free[1]) == (30, 14 - 3 * 2)
    for number in range(4, 9):
        assert (
            reason(Request(f"r{number}", "m", (number,) * 60, SamplingParams(max_tokens=20, ignore_eos=True)))
            == "length"
        )
    hits = scheduler.hit_tokens
    assert reason(Request("again", "m", (*prompts[0], 9), SamplingParams(max_tokens=1))) == "length"
    assert scheduler.hit_tokens - hits == 40


def test_nothing_is_pinned_where_no_prefixes_are_kept() -> None:
    lane, scheduler, _ = lane_of(Limits(max_step_tokens=8, max_running=2), 20, prefix_cache=False, window=6, pages=14)
    lane.submit(Request("r", "m", (1,) * 45, SamplingParams(max_tokens=1), probe=True, pin=True), 0.0)
    ends = [delta.finish for _ in range(6) for delta in lane.step()]
    assert [end and end.reason for end in ends] == ["stop"]
    lane.check()
    assert scheduler.tables.free == (20, 14)


@pytest.mark.parametrize(
    ("windows", "seen"),
    [((None, 24, 8), 24), ((None, 24, 512), 24), ((None, None), None), ((24, 8), None), ((24, 600), 24), ((), None)],
)
def test_layers_with_a_shorter_window_than_the_context_are_told_apart(
    windows: tuple[int | None, ...], seen: int | None
) -> None:
    assert partial_window(windows, 512) == seen


def test_pages_that_no_sequence_fits_are_refused() -> None:
    with pytest.raises(ValueError, match="pages is 5"):
        kv_tables(200, 4, b"key", window=Window(24, 16, 4), pages=5)
    with pytest.raises(ValueError, match="pages is 5, which must be 0"):
        kv_tables(200, 4, b"key", pages=5)
