"""Blocks that the pool overwrote come back from a tier, byte for byte, to who may have them, and hold nobody up."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lane_memory import BLOCK_SIZE, MemoryRecords, tiered_lane
from safetensors.torch import load_file, save_file
from tiny_models import MakeCheckpoint, write_tokenizer

from headgate.engine.engine import Engine
from headgate.engine.errors import CheckpointError
from headgate.engine.front.local import LocalModel
from headgate.engine.kv.disk import DiskFolder, KVFolderError
from headgate.engine.kv.tiers import TierStats
from headgate.engine.request import Finish, Priority, Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduling.limits import Limits
from headgate.engine.settings import EngineSettings, ModelSpec

ONE = SamplingParams(max_tokens=1, ignore_eos=True)
LIMITS = Limits(max_step_tokens=40, max_running=2)
PROMPT = tuple(1 + number * number % 5 for number in range(30))


class Bench:
    """A lane of 12 blocks over tiers, and what came of requests."""

    def __init__(self, **how: Any) -> None:
        self.lane, self.scheduler, self.memory, self.errands = tiered_lane(LIMITS, **{"rows": 80, **how})
        self.finished: dict[str, Finish] = {}

    @property
    def stats(self) -> TierStats:
        stats = self.lane.stats.tiers
        assert stats is not None
        return stats

    def submit(self, name: str, prompt: tuple[int, ...] = PROMPT, tenant: str = "t", **how: Any) -> None:
        self.lane.submit(Request(name, "m", prompt, ONE, tenant=tenant, **how), 0.0)

    def run(self) -> None:
        """Until there is nothing to do that can be done."""
        while not self.lane.idle:
            for delta in self.lane.step():
                if delta.finish is not None:
                    self.finished[delta.request_id] = delta.finish
            self.lane.check()

    def ask(self, name: str, prompt: tuple[int, ...] = PROMPT, tenant: str = "t", **how: Any) -> Finish:
        """And all that is to be done beside."""
        self.submit(name, prompt, tenant, **how)
        self.run()
        while name not in self.finished:
            self.errands.run(1)
            self.run()
        self.errands.run(100)
        return self.finished[name]

    def flood(self, *, priority: Priority = "foreground") -> None:
        """Overwrite every block."""
        for number in range(2):
            prompt = tuple((number + at * at * at) % 6 for at in range(44))
            self.ask(f"flood {len(self.finished)}", prompt, f"flood {len(self.finished)}", priority=priority)


def test_a_prefix_comes_back_from_memory_to_its_tenant() -> None:
    bench = Bench()
    assert bench.ask("first").cached_tokens == 0
    bench.flood()
    assert bench.lane.resident("t", PROMPT) == 0
    assert bench.ask("another's", tenant="u").cached_tokens == 0
    assert bench.ask("again").cached_tokens == 28
    assert (bench.stats.loads, bench.stats.host_tokens, bench.stats.short_loads) == (1, 28, 0)
    assert bench.ask("resident").cached_tokens == 28
    assert bench.ask("longer", (*PROMPT, 4, 4, 4)).cached_tokens == 28
    assert bench.stats.loads == 1


def test_who_waits_for_a_load_keeps_nobody_waiting() -> None:
    bench = Bench()
    bench.ask("first")
    bench.flood()
    bench.submit("loads")
    bench.submit("loads too", (*PROMPT, 5))
    bench.submit("another's", (3, 1, 4), "u")
    bench.submit("behind", (2, 7, 1))
    bench.run()
    assert set(bench.finished) >= {"another's", "behind"}
    assert not {"loads", "loads too"} & set(bench.finished)
    assert bench.lane.stalled
    assert bench.lane.wanted == (0, 2)
    assert bench.stats.loads == 1, "both wait for the same"
    bench.errands.run(1)
    bench.run()
    assert [bench.finished[name].cached_tokens for name in ("loads", "loads too")] == [28, 28]


def test_a_load_that_takes_too_long_is_not_waited_for() -> None:
    bench = Bench(blocks=20)
    bench.ask("first")
    bench.flood()
    bench.submit("late")
    bench.run()
    (alarm,) = bench.errands.alarms
    alarm()
    bench.errands.answer()
    bench.run()
    assert bench.finished["late"].cached_tokens == 0
    assert bench.ask("another", (5, *PROMPT)).cached_tokens == 0, "while one hangs nothing is loaded"
    bench.errands.run(100)
    bench.run()
    assert (bench.stats.short_loads, bench.lane.stats.kv_blocks_used) == (1, 0)


@pytest.mark.parametrize("left", [0, 3])
def test_what_fails_on_the_way_is_computed(left: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = DiskFolder(tmp_path, 1 << 20)
    tier = folder.tier("m", MemoryRecords.NBYTES)
    bench = Bench(disk=tier, keeps=False, rows=20, most_queued=20)
    bench.ask("first")
    bench.flood()
    bench.submit("asks")
    bench.run()
    if left:
        # Meanwhile some of it goes.
        tables = bench.scheduler.tables
        for identity, _ in list(tables.beyond(tables.table("t"), PROMPT))[left:]:
            tier.forget(identity)
    else:

        def fail(*_: object) -> None:
            raise RuntimeError("the device is gone")

        monkeypatch.setattr(MemoryRecords, "load", fail)
    bench.errands.run(1)
    bench.run()
    assert bench.finished["asks"].cached_tokens == left * BLOCK_SIZE
    assert (bench.stats.short_loads, bench.stats.disk_tokens) == (1, left * BLOCK_SIZE)
    folder.close()


def test_a_request_that_is_cancelled_leaves_its_load_alone() -> None:
    bench = Bench()
    bench.ask("first")
    bench.flood()
    bench.submit("leaves")
    bench.run()
    (delta,) = bench.lane.cancel("leaves", None)
    assert delta.finish is not None
    assert bench.lane.wanted == (0, 1), "it cannot sleep: blocks are written to"
    bench.errands.run(1)
    bench.run()
    assert bench.lane.wanted == (0, 0)
    assert bench.lane.resident("t", PROMPT) == 28


def test_what_a_failed_step_may_have_spoilt_is_in_no_tier(tmp_path: Path) -> None:
    folder = DiskFolder(tmp_path, 1 << 20)
    bench = Bench(disk=folder.tier("m", MemoryRecords.NBYTES))
    bench.ask("first")
    bench.flood()
    bench.submit("loads", (*PROMPT, *PROMPT[:8]))
    bench.run()
    bench.errands.run(1)
    assert len(list((tmp_path / "m").iterdir())) > 7
    bench.memory.fail_next = True
    bench.run()
    assert bench.finished["loads"].reason == "error"
    assert bench.ask("again").cached_tokens == 0
    bench.flood()
    assert bench.ask("later").cached_tokens == 28
    folder.close()


def test_what_background_work_read_pushes_nothing_out() -> None:
    bench = Bench(rows=7)
    bench.ask("first")
    bench.flood(priority="background")
    bench.flood(priority="background")
    assert bench.ask("again").cached_tokens == 28


def test_what_is_quicker_to_compute_is_not_loaded_for_a_while() -> None:
    bench = Bench()  # whose clock goes on by a second a look
    tiers = bench.scheduler.tiers
    assert tiers is not None
    bench.ask("first")
    bench.flood()
    tiers.computed(64, 0.064)
    assert bench.ask("tries").cached_tokens == 28, "nobody knows yet"
    for _ in range(3):
        bench.flood()
        assert bench.ask("computes", priority="interactive").cached_tokens == 0
    tiers.computed(64, 6400.0)
    bench.flood()
    assert bench.ask("loads").cached_tokens == 28
    assert Bench(least_blocks=8).ask("short").cached_tokens == 0


def test_copies_are_bounded() -> None:
    bench = Bench(rows=8, most_queued=3)
    bench.ask("first")
    bench.flood()
    assert bench.stats.dropped_blocks > 0
    assert bench.stats.host_blocks <= 8


def test_what_is_not_on_disk_is_written_while_nobody_asks_and_at_the_end(tmp_path: Path) -> None:
    folder = DiskFolder(tmp_path, 1 << 20)
    tier = folder.tier("m", MemoryRecords.NBYTES)
    bench = Bench(disk=tier, keeps=False, rows=16, most_queued=16)
    bench.ask("first")
    assert tier.sizes[0] == 0
    prepared = [bench.lane.prepare(idle=idle) for idle in (False, *[True] * 5)]
    assert prepared == [False, *[True] * 4, False], "two blocks at a time"
    bench.errands.run(100)
    assert (tier.sizes[0], bench.stats.written_blocks) == (7, 7)
    bench.ask("second", (*PROMPT, *PROMPT[:10]))
    tiers = bench.scheduler.tiers
    assert tiers is not None
    bench.errands.tasks.clear()
    tiers.close()
    assert tier.sizes[0] == 10
    after = Bench(disk=tier, keeps=False)
    assert after.ask("again", (*PROMPT, *PROMPT[:10])).cached_tokens == 36
    assert (after.stats.disk_tokens, after.stats.host_tokens, after.stats.host_blocks) == (36, 0, 0)
    folder.close()


def test_what_memory_has_is_written_once_the_disk_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    folder = DiskFolder(tmp_path, 1 << 20, clock=lambda: now)
    tier = folder.tier("m", MemoryRecords.NBYTES)
    bench = Bench(disk=tier)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "open", full)
        bench.ask("first")
        bench.flood()
    assert (tier.sizes[0], tier.writable, bench.stats.host_blocks > 7) == (0, False, True)
    now, folder.most = 31.0, 1 << 20
    assert bench.ask("again").cached_tokens == 28
    while bench.lane.prepare(idle=True):
        bench.errands.run(100)
    assert tier.sizes[0] >= 7
    folder.close()


WORDS = tuple(5 + number * number % 90 for number in range(230))
SIX = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
ENGINE = EngineSettings(device="cpu", threads=1, kv_bytes=1 << 22)


async def answer(model: LocalModel, prompt: tuple[int, ...] = WORDS, tenant: str = "t") -> tuple[list[int], int]:
    """The tokens, and how many of the prompt's were cached."""
    tokens: list[int] = []
    async for delta in model.generate("r", prompt, SIX, tenant=tenant):
        tokens.extend(delta.token_ids)
        if delta.finish is not None:
            cached = delta.finish.cached_tokens
    return tokens, cached


@contextmanager
def served(settings: EngineSettings, folder: Path, **spec: Any) -> Iterator[LocalModel]:
    engine = Engine(settings)
    try:
        engine.load(ModelSpec("m", folder, **{"dtype": "float32", **spec}))
        engine.start()
        yield engine.models["m"]
    finally:
        engine.stop()


def tiers_of(model: LocalModel) -> TierStats:
    stats = model.stats().tiers
    assert stats is not None
    return stats


@pytest.mark.parametrize("kept", ["auto", "int8"])
@pytest.mark.parametrize("kernels", ["auto", "reference"])
async def test_a_prefix_survives_a_restart_and_the_answer_is_the_same(
    tiny_checkpoint: Path, tmp_path: Path, kernels: Any, kept: Any
) -> None:
    settings = replace(ENGINE, kernels=kernels, kv_dtype=kept, kv_disk_path=tmp_path / "kv")
    with served(settings, tiny_checkpoint) as model:
        cold, warm = await answer(model), await answer(model)
    with served(settings, tiny_checkpoint) as model:
        assert [await answer(model), (await answer(model, tenant="u"))[1]] == [warm, 0]
        assert (warm[1], warm[0]) == (224, cold[0])
        tiers = tiers_of(model)
        assert (tiers.disk_tokens, tiers.short_loads, tiers.host_blocks) == (224, 0, 0)


async def test_a_prefix_comes_back_from_host_memory(tiny_checkpoint: Path) -> None:
    with served(ENGINE, tiny_checkpoint) as model:
        block = model.info.kv_bytes_per_token * 16
        wanted = await answer(model)
    small = replace(ENGINE, kv_bytes=20 * block, kv_host_bytes=60 * block)
    with served(small, tiny_checkpoint) as model:
        assert await answer(model) == wanted
        for other in range(2):
            await answer(model, tuple(5 + (number * number + other) % 80 for number in range(230)), "u")
        assert model.resident(WORDS, "t") < 100
        assert await answer(model) == (wanted[0], 224)
        tiers = tiers_of(model)
        assert tiers.host_tokens >= 128
        assert (tiers.host_bytes, tiers.disk_blocks) == (60 * block, 0)


async def test_a_model_that_slept_finds_on_disk_what_it_had(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with served(replace(ENGINE, kv_disk_path=tmp_path), tiny_checkpoint) as model:
        first = await answer(model)
        assert model.sleeper is not None
        async with asyncio.timeout(20):
            while tiers_of(model).written_blocks < 14:  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0.01)
        await asyncio.wrap_future(model.sleeper.sleep())
        assert model.resident(WORDS, "t") == 0
        assert await answer(model) == (first[0], 224)


def write_adapter(base: Path, folder: Path) -> Path:
    """A LoRA adapter of one layer."""
    folder.mkdir()
    module = "model.layers.0.self_attn.v_proj"
    rows, columns = load_file(base / "model.safetensors")[f"{module}.weight"].shape
    factors = {"lora_A": torch.full((2, columns), 0.1), "lora_B": torch.full((rows, 2), 0.1)}
    tensors = {f"base_model.model.{module}.{name}.weight": factor for name, factor in factors.items()}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    stated = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none", "target_modules": ["v_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(stated))
    return folder


async def test_only_the_same_model_computed_the_same_way_finds_blocks(
    make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    folder, disk = tmp_path / "model", tmp_path / "kv"
    shutil.copytree(make_checkpoint("qwen3"), folder)
    write_tokenizer(folder)
    settings = replace(ENGINE, kv_disk_path=disk, keep_quantized=False)

    async def cached(settings: EngineSettings = settings, **spec: Any) -> int:
        with served(settings, folder, **spec) as model:
            return (await answer(model))[1]

    assert [await cached(), await cached()] == [0, 224]
    assert await cached(dtype="bfloat16") == 0
    assert await cached(weights="int8") == 0
    adapter = write_adapter(folder, tmp_path / "adapter")
    assert [await cached(adapter=adapter) for _ in range(2)] == [0, 224]
    assert await cached(context_length=300) == 0
    assert await cached(replace(settings, kv_dtype="int8")) == 0
    assert await cached(replace(settings, block_size=8)) == 0
    assert await cached(replace(settings, kernels="reference")) == 0
    assert await cached(replace(settings, prefix_cache=False)) == 0
    assert await cached() == 224, "all of them are there"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
    assert await cached() == 0
    (folder / "config.json").write_text(json.dumps(config))
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    assert await cached() == 0


async def test_damaged_blocks_are_computed_and_told_once(
    tiny_checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(ENGINE, kv_disk_path=tmp_path)
    with served(settings, tiny_checkpoint) as model:
        wanted = await answer(model)
    for path in list(tmp_path.glob("*/" + "?" * 64)):  # noqa: ASYNC240
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 16
        path.write_bytes(content)
    with caplog.at_level(logging.WARNING), served(settings, tiny_checkpoint) as model:
        assert await answer(model) == wanted
        assert await answer(model, WORDS[:100]) == ((await answer(model, WORDS[:100]))[0], 96)
    assert len([message for message in caplog.messages if "damaged" in message]) == 1


def test_two_engines_have_a_folder_each(tiny_checkpoint: Path, tmp_path: Path) -> None:
    settings = replace(ENGINE, kv_disk_path=tmp_path)
    with served(settings, tiny_checkpoint), pytest.raises(KVFolderError, match="used by another process"):
        Engine(settings).load(ModelSpec("m", tiny_checkpoint))
    with served(replace(settings, prefix_cache=False), tiny_checkpoint) as model:
        assert model.stats().tiers is None
    with served(settings, tiny_checkpoint) as model:
        assert model.stats().tiers is not None


def test_an_engine_that_loads_nothing_leaves_the_folder_to_others(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Without a word from whoever called it: there is nothing to stop."""
    settings = EngineSettings(device="cpu", kv_bytes=1 << 20, kv_disk_path=tmp_path / "kv")
    with pytest.raises(CheckpointError, match="'a'"):
        Engine(settings).load(ModelSpec("m", tiny_checkpoint, adapters={"a": tmp_path}))
    engine = Engine(settings)
    engine.load(ModelSpec("m", tiny_checkpoint))
    engine.stop()
