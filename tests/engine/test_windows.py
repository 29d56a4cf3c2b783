"""Models whose layers all have a window: blocks behind it go to others while sequences run, and no answer changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from engine_site import StartLine, serving
from greedy_oracle import likeliest
from hypothesis import given
from hypothesis import strategies as st
from lane_memory import lane_of
from tiny_models import COMMON, MakeCheckpoint, write_tokenizer

from headgate.engine.engine import Engine
from headgate.engine.errors import PromptTooLong
from headgate.engine.front.local import LocalModel
from headgate.engine.kv.kinds import kv_tables
from headgate.engine.kv.window import Window
from headgate.engine.kv.window_tables import WindowTables
from headgate.engine.request import Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduling.limits import Limits
from headgate.engine.settings import EngineSettings, ModelSpec

NEW = 30
DRAWN = torch.randint(3, 320, (200,), generator=torch.Generator().manual_seed(7)).tolist()
# The second begins as the first does, the third ends where it is long past the window of both.
PROMPTS = [DRAWN[:150], [*DRAWN[:90], *DRAWN[100:130]], DRAWN[:7], DRAWN[:61]]
SMALL = EngineSettings(device="cpu", max_step_tokens=13, max_running=5, block_size=4)
BLOCKS = 26
"""Of 104 tokens, where a window and a step take 12."""


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


@pytest.fixture(scope="module")
def mistral(make_checkpoint: MakeCheckpoint) -> Path:
    folder = make_checkpoint("mistral")
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def expected(mistral: Path) -> list[list[int]]:
    with serving(mistral, EngineSettings(device="cpu", block_size=4)) as model:
        told = [tokens for (tokens,) in complete_all(model)]
    oracle = transformers.AutoModelForCausalLM.from_pretrained(mistral, attn_implementation="eager")
    assert likeliest(oracle, PROMPTS, told) == told
    return told


@pytest.mark.parametrize(
    "settings",
    [
        SMALL,
        replace(SMALL, kernels="reference"),
        replace(SMALL, kernels="reference", decode_ahead=True),
        replace(SMALL, prefix_cache=False),
        replace(SMALL, kv_dtype="int8", block_size=16),
    ],
    ids=["auto", "reference", "ahead", "nothing is cached", "int8"],
)
def test_answers_are_those_of_transformers_in_less_memory_than_a_prompt_has(
    settings: EngineSettings, mistral: Path, expected: list[list[int]]
) -> None:
    with serving(mistral, settings, BLOCKS * 4 // settings.block_size) as model:
        assert model.info.context_length == 512
        exact = settings.kv_dtype == "auto"
        for _ in range(2):  # what was cached the first time is found in part
            found = complete_all(model, 2)
            assert not exact or found == [[tokens, tokens] for tokens in expected]
        stats = model.stats()
        assert (stats.running, stats.waiting, stats.kv_blocks_used, stats.failed_steps) == (0, 0, 0, 0)
        again = [
            asyncio.run(complete(model, [*prompt, *tokens[:9]]))
            for prompt, tokens in zip(PROMPTS, expected, strict=True)
        ]
        assert not exact or [one[: NEW - 9] for (one,) in again] == [tokens[9:] for tokens in expected]


def test_who_is_preempted_goes_on_as_before(mistral: Path, expected: list[list[int]]) -> None:
    line = StartLine()
    with serving(mistral, SMALL, 19, clock=line) as model:
        askers = [complete(model, prompt) for prompt in PROMPTS]
        assert asyncio.run(line.together(model, askers)) == [[tokens] for tokens in expected]
        assert model.stats().preemptions > 0


def test_a_conversation_goes_on_behind_what_its_window_has(mistral: Path, expected: list[list[int]]) -> None:
    with serving(mistral, SMALL, BLOCKS) as model:
        assert asyncio.run(complete(model, PROMPTS[0])) == [expected[0]]
        longer = [*PROMPTS[0], *expected[0], 5, 6, 7]
        assert model.resident(tuple(longer), "") == 176
        hits = model.stats().prefix_hits
        asyncio.run(complete(model, longer))
        assert model.stats().prefix_hits - hits == 176
        assert model.resident(tuple(PROMPTS[0][:60]), "") == 0, "its blocks have had other owners"


def test_drafts_change_no_answer(mistral: Path, expected: list[list[int]]) -> None:
    edited = (*expected[0][:11], 3, *expected[0][12:])
    with serving(mistral, SMALL, BLOCKS) as model:
        assert asyncio.run(complete(model, PROMPTS[0], draft=edited)) == [expected[0]]


def test_probes_look_at_their_whole_prompt(mistral: Path) -> None:
    prompt = tuple(DRAWN[:82])

    async def state(model: LocalModel) -> list[float]:
        return [*(await model.probe("p", prompt)).state.tolist()]

    with serving(mistral, SMALL) as roomy, serving(mistral, SMALL, BLOCKS) as small:
        wanted = asyncio.run(state(roomy))
        assert asyncio.run(state(small)) == pytest.approx(wanted, abs=1e-5)
        assert small.resident(prompt, "") == 81, "an answer goes on from where it ended"
        asyncio.run(complete(small, DRAWN[:82]))
        # Of what is cached now an answer would need less.
        assert asyncio.run(state(small)) == pytest.approx(wanted, abs=1e-5)
        with pytest.raises(PromptTooLong):
            asyncio.run(small.probe("p", tuple(DRAWN[:104])))


def test_a_guest_of_windows_gives_its_blocks_back(tmp_path: Path) -> None:
    torch.manual_seed(1)
    options: dict[str, Any] = {**COMMON, "sliding_window": 24}
    transformers.AutoModelForCausalLM.from_config(transformers.Starcoder2Config(**options)).save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    with serving(tmp_path, SMALL, BLOCKS) as model:
        told = [tokens for (tokens,) in complete_all(model)]
        assert model.info.context_length == 512
    oracle = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    assert likeliest(oracle, PROMPTS, told) == told


def test_where_there_are_tiers_all_is_kept(mistral: Path, expected: list[list[int]], tmp_path: Path) -> None:
    engine = Engine(replace(SMALL, kv_bytes=1 << 17, kv_disk_path=tmp_path / "kv"))
    engine.load(ModelSpec("m", mistral, dtype="float32"))
    engine.start()
    try:
        assert engine.models["m"].info.context_length < 512
        assert asyncio.run(complete(engine.models["m"], PROMPTS[2])) == [expected[2]]
    finally:
        engine.stop()


def held(prompt: int, *, window: int | None) -> tuple[int, int]:
    """Most blocks of 4 tokens in use while a prompt is read and continued, and those in use while it is continued."""
    lane, _, _ = lane_of(Limits(max_step_tokens=16, max_running=2), 200, context_length=512, window=window)
    asked = tuple(1 + i * i % 5 for i in range(prompt))
    lane.submit(Request("r", "m", asked, SamplingParams(max_tokens=20, ignore_eos=True)), 0.0)
    most = last = 0
    while not lane.idle:
        lane.step()
        lane.check()
        used = lane.stats.kv_blocks_used
        most, last = max(most, used), used or last
    return most, last


def test_a_long_context_takes_a_window_of_blocks() -> None:
    assert held(400, window=None) == (105, 105)
    assert held(400, window=24) == (12, 7)
    assert held(400, window=512) == (105, 105), "as long as the context"
    assert held(20, window=24) == (7, 7)


@pytest.mark.parametrize(("blocks", "step"), [(200, 16), (12, 16), (11, 12), (9, 4), (8, None)])
def test_steps_are_as_large_as_the_pool_allows(blocks: int, step: int | None) -> None:
    window = Window.of(24, step=16, block_size=4, blocks=blocks, context_length=512)
    assert (None if window is None else window.step) == step
    assert window is None or window.blocks <= blocks


@given(st.lists(st.booleans(), max_size=14), st.integers(1, 24))
def test_a_prefix_can_be_gone_on_behind_where_all_is_there_that_is_read_then(there: list[bool], tokens: int) -> None:
    window = Window(tokens, step=8, block_size=4)
    ends = [end for end in range(len(there) + 1) if all(there[window.first(4 * end) : end])]
    assert window.readable(there) == max(ends)


def test_a_model_with_states_keeps_its_blocks() -> None:
    window = Window.of(24, step=16, block_size=4, blocks=200, context_length=512)
    with pytest.raises(ValueError, match="window and states are both given"):
        kv_tables(200, 4, b"key", states=4, window=window)


def test_what_a_failed_sequence_gave_back_is_wiped() -> None:
    """It may be what broke it."""
    window = Window.of(6, step=8, block_size=4, blocks=12, context_length=100)
    tables, tokens = WindowTables(window, 12, 4, b"key"), [*range(24)]
    table = tables.table("")
    assert tables.extend(table, 20)
    tables.publish(table, tokens, 20)
    own = [*table.blocks]
    tables.give_back(table, 20)
    assert (table.gone, tables.free_blocks) == (3, 10)
    other = tables.table("")
    assert tables.attach_prefix(other, tokens[:13]) == 12
    tables.check([table, other])
    assert sorted(tables.release(table, discard=True)) == sorted(set(own) - set(other.blocks))
    tables.release(other)
    assert tables.resident("", tokens) == 12
    tables.check([])
