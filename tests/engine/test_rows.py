"""What the device is told of sequences that decode: each goes on from the tokens that were given out."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from pathlib import Path

import pytest
import torch

from headgate.engine.device_steps.ahead import AheadDecoder
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kernels.reference_rows import ReferenceRows
from headgate.engine.kv.store import KVStore
from headgate.engine.kv.tables import KVTables
from headgate.engine.lane import Lane
from headgate.engine.models.decoder import Decoder
from headgate.engine.models.loader import load_decoder
from headgate.engine.request import Request
from headgate.engine.runner import Runner
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduler import Scheduler
from headgate.engine.scheduling.limits import Limits

CPU = torch.device("cpu")
BLOCKS, BLOCK_SIZE, LONGEST = 900, 4, 48
GREEDY = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)


def lane_of(decoder: Decoder, most: int) -> Lane:
    """A step ahead, or two."""
    store = KVStore(decoder.spec, BLOCKS + 1, BLOCK_SIZE, decoder.dtype, CPU)
    ahead = AheadDecoder(decoder, store, ReferenceRows(), most=most, longest=LONGEST, record=None)
    limits = Limits(max_step_tokens=most + 8, max_running=most, max_sequence_share=1.0)
    scheduler = Scheduler(KVTables(BLOCKS, BLOCK_SIZE, b"key", prefix_cache=False), limits)
    clock = count(0.0, 1.0).__next__
    return Lane(scheduler, Runner(decoder, store, ahead), context_length=LONGEST, eos_ids=(), clock=clock)


@pytest.fixture
def decoder(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Decoder:
    """Steps on rows take the likeliest token but one, all others the likeliest: as if they differed by rounding."""
    healthy = ReferenceRows.choose

    def choose(self: ReferenceRows, logits: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return healthy(self, logits.scatter(1, logits.argmax(-1, keepdim=True), -1e9), *others)  # type: ignore[arg-type]

    monkeypatch.setattr(ReferenceRows, "choose", choose)
    return load_decoder(tiny_checkpoint, ReferenceKernels(), dtype="float32", device=CPU).decoder


def assert_each_token_follows_from_those_before_it(decoder: Decoder, prompt: tuple[int, ...], said: list[int]) -> int:
    """Whichever step chose it; gives how many of them steps on rows did."""
    scorer, scores = lane_of(decoder, 2), []
    scorer.submit(Request("s", "m", prompt, SamplingParams(logprobs=2), score=tuple(said)), 0.0)
    while not scorer.idle:
        scores += [score for delta in scorer.step() for score in delta.scores]
    places = [[token for token, _ in score.top].index(score.token_id) for score in scores]
    assert len(places) == len(said)
    return sum(places)


@pytest.mark.parametrize("rows", [3, 64], ids=["one step unread", "two"])
def test_what_nobody_reads_of_the_device_is_told_it_anew(decoder: Decoder, rows: int) -> None:
    lane, told = lane_of(decoder, rows + 1), defaultdict[str, list[int]](list)
    prompts = {f"long {row}": (5, 6, 7, row) for row in range(rows)}

    def steps(times: int) -> None:
        with torch.inference_mode():
            for _ in range(times):
                for delta in lane.step():
                    told[delta.request_id] += delta.token_ids
        lane.check()

    for name, prompt in prompts.items():
        lane.submit(Request(name, "m", prompt, GREEDY), 0.0)
    while len(told) < rows:
        steps(1)
    left = AheadDecoder.left(rows)
    for number in range(4):
        steps(2)
        # A prompt is read in as many steps as were begun: they compute once more what nobody has read.
        lane.submit(Request(f"short {number}", "m", (9,) * (9 * left), SamplingParams(max_tokens=1)), 0.0)
        steps(left)
        assert len(told[f"short {number}"]) == 1
        if number == 2:
            lane.cancel("long 1", None)
    while not lane.idle:
        steps(1)
    for name in ("long 0", f"long {rows - 1}"):
        chosen = assert_each_token_follows_from_those_before_it(decoder, prompts[name], told[name])
        assert 0 < chosen < len(told[name]) - 4 * left, "both kinds of steps have chosen some"
