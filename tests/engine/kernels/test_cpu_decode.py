"""Several steps in one native call against operators one by one and the sampler: the same tokens, the same cache."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from decode_sequences import BLOCK, BLOCKS, PARAMS, OneByOne, Sequences
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.demo import checkpoint
from headgate.engine.kernels.cpu.kernels import CpuKernels, native_status
from headgate.engine.kernels.whole_step import DecodeBatch
from headgate.engine.kv.store import KVStore
from headgate.engine.models.decoder import Decoder
from headgate.engine.models.loader import load_decoder
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.stepping.found import Sampled
from headgate.engine.stepping.inputs import Interrupt

STATUS = native_status()
pytestmark = pytest.mark.skipif(not STATUS.usable, reason=f"native kernels: {STATUS.why}")


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return load_decoder(checkpoint("student"), CpuKernels()).decoder


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def stepwise() -> Decoder:
    return load_decoder(checkpoint("student"), OneByOne()).decoder


@settings(max_examples=25, deadline=None)
@given(params=st.lists(PARAMS, min_size=1, max_size=6), most=st.integers(1, 30))
def test_steps_in_a_row_are_the_steps_one_by_one(
    decoder: Decoder, stepwise: Decoder, params: list[SamplingParams], most: int
) -> None:
    several, single = Sequences(decoder, params), Sequences(stepwise, params)
    assert several.decode(most) == most
    for _ in range(most):
        assert single.decode(most) == 1
    assert several.outputs() == single.outputs()
    for a, b in zip(several.store.layers, single.store.layers, strict=True):
        assert torch.equal(a.keys, b.keys)
        assert torch.equal(a.values, b.values)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_no_token(decoder: Decoder, threads: int) -> None:
    params = [SamplingParams(temperature=0.0), SamplingParams(seed=3), SamplingParams(top_p=0.9, seed=4)]
    expected, got = Sequences(decoder, params), Sequences(decoder, params)
    expected.decode(20)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        got.decode(20)
    finally:
        torch.set_num_threads(before)
    assert got.outputs() == expected.outputs()


def test_a_token_that_ends_a_sequence_ends_the_run(decoder: Decoder) -> None:
    free = Sequences(decoder, [SamplingParams(temperature=0.0), SamplingParams(temperature=3.0, seed=1)])
    free.decode(30)
    wanted = free.outputs()[1]
    place = next(i for i in range(5, 31) if wanted[i] not in wanted[:i])
    stopping = SamplingParams(temperature=3.0, seed=1, stop_token_ids=(wanted[place],))
    held = Sequences(decoder, [SamplingParams(temperature=0.0), stopping])
    assert held.decode(30) == place, "the first token came with the prompt"
    assert held.outputs() == [tokens[: place + 1] for tokens in free.outputs()]


def test_an_interrupted_run_ends_with_the_step_that_is_under_way(decoder: Decoder) -> None:
    run = Sequences(decoder, [SamplingParams(temperature=0.0)])
    run.interrupt.set()
    assert [run.decode(9), run.decode(9)] == [1, 1]
    run.interrupt.clear()
    assert run.decode(9) == 9


def test_logits_that_are_not_finite_end_the_run_and_spare_the_neighbours(decoder: Decoder) -> None:
    run = Sequences(decoder, [SamplingParams(temperature=0.0), SamplingParams(seed=1)])
    for layer in run.store.layers:
        layer.values[run.sequences[1].table.blocks[0] * BLOCK] = torch.nan
    chunks = [Chunk(s, len(s.tokens) - 1, 1) for s in run.sequences]
    sound, broken = run.runner.run(chunks, 9, run.interrupt, repeats=True)
    assert (sound.broken, broken.broken) == (False, True)
    assert isinstance(sound, Sampled)
    assert len(sound.tokens) == 1


def batch(**changes: object) -> DecodeBatch:
    fields: dict[str, object] = {
        "rows": torch.tensor([5, 3, 0, 0, 0, 0, 0]),
        "choices": torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64),
        "tables": torch.tensor([7, 8], dtype=torch.int32),
        "ends": torch.empty(0, dtype=torch.int64),
        "block_size": BLOCK,
        "context": 4,
    }
    return DecodeBatch(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "most", "message"),
    [
        ({"rows": torch.tensor([4096, 3, 0, 0, 0, 0, 0])}, 1, "token 4096 of 4096"),
        ({"rows": torch.tensor([5, -1, 0, 0, 0, 0, 0])}, 1, "positions -1 to 0"),
        ({}, 6, "too short: 2 blocks"),
        ({"rows": torch.tensor([5, 3, 1, 0, 0, 0, 0])}, 2, "too short: 2 blocks"),
        ({"rows": torch.tensor([5, 3, 0, 0, 1, 0, 0])}, 1, "0 ends"),
        ({"tables": torch.tensor([7, BLOCKS], dtype=torch.int32)}, 2, f"block {BLOCKS} of {BLOCKS}"),
        ({"choices": torch.tensor([0.0, 1.0], dtype=torch.float64)}, 1, "choices must be contiguous"),
        ({"rows": torch.tensor([5, 3, 0])}, 1, "rows must be contiguous"),
        ({}, 0, "most must be positive"),
    ],
)
def test_what_does_not_fit_is_refused(decoder: Decoder, changes: dict[str, object], most: int, message: str) -> None:
    store = KVStore(decoder.spec, BLOCKS, BLOCK, decoder.dtype, torch.device("cpu"))
    with pytest.raises((IndexError, RuntimeError), match=message):
        decoder.decode(batch(**changes), store.layers, most, Interrupt().flag)
