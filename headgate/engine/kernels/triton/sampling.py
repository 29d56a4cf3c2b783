"""Sampling: the likeliest token of each row, or one drawn from its truncated distribution, without asking the host.

A row is surveyed in segments by as many programs, then one program looks only at the segments that matter. Nothing is
sorted: the tokens that top_k and top_p keep are the first ones in order of likelihood (equal ones by ascending id), so
that a drawn token is one of them if few enough, and little enough mass, come before it. If not, the draw goes on among
those that do come before it, which is what a draw from the kept ones alone would have come to: the noise of a token is
its own.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.device_rows import BIASED, BIASES, PROMPTED, TOP_K, RowState
from headgate.engine.kernels.triton.launch import begin, overlapping, wait
from headgate.engine.kernels.triton.noise import gumbel

_SEGMENT = 2048
"""Tokens of a row that one program surveys: 75 at a vocabulary of 151,936, which one row spreads over half a GPU."""


@triton.jit
def _adjusted(
    score: tl.tensor,
    column: tl.tensor,
    inside: tl.tensor,
    row: tl.tensor,
    choice: tl.tensor,
    counts: tl.tensor,
    biases: tl.tensor,
    bias_tokens: tl.tensor,
    bias_values: tl.tensor,
    width: tl.tensor,
    most_biases: tl.constexpr,
    prompted: tl.constexpr,
) -> tl.tensor:
    """By bias, then repetition, then presence and frequency, each as `processors.process` does it."""
    for number in range(0, tl.load(biases)):
        token = tl.load(bias_tokens + row * most_biases + number)
        score = tl.where(column == token, score + tl.load(bias_values + row * most_biases + number), score)
    repetition = tl.load(choice + 3).to(tl.float32)
    presence, frequency = tl.load(choice + 4), tl.load(choice + 5)
    if (repetition != 1.0) | (presence != 0.0) | (frequency != 0.0):
        count = tl.load(counts + row * width + column, mask=inside, other=0)
        repeated = tl.where(score < 0, score * repetition, tl.div_rn(score, repetition))
        score = tl.where(count > 0, repeated, score)
        count = count & (prompted - 1)
        score = tl.where(count > 0, score - (presence + frequency * count).to(tl.float32), score)
    return score


@triton.jit
def _survey(
    logits: tl.tensor,
    order: tl.tensor,
    choices: tl.tensor,
    counts: tl.tensor,
    biases: tl.tensor,
    bias_tokens: tl.tensor,
    bias_values: tl.tensor,
    scores: tl.tensor,
    peaks: tl.tensor,
    places: tl.tensor,
    raw_peaks: tl.tensor,
    raw_sums: tl.tensor,
    width: tl.tensor,
    bias_stride: tl.tensor,
    most_biases: tl.constexpr,
    prompted: tl.constexpr,
    settings: tl.constexpr,
    block: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per row and segment: its likeliest token, infinite where one is NaN.

    With `scores`, the row's adjusted logits go there if it draws; with `raw_peaks`, what the logits themselves sum to.
    """
    begin(pdl)
    wait(pdl)
    line, segment = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = segment * block + tl.arange(0, block)
    inside = column < width
    score = tl.load(logits + line * width + column, mask=inside, other=float("-inf")).to(tl.float32)
    kept = line * tl.num_programs(1) + segment
    if raw_peaks is not None:
        peak = tl.max(score, axis=0)
        tl.store(raw_peaks + kept, peak)
        base = tl.where(peak == float("-inf"), 0.0, peak)
        tl.store(raw_sums + kept, tl.sum(tl.exp(score - base), axis=0))
    if choices is not None:
        row = line
        if order is not None:
            row = tl.load(order + line)
        choice = choices + row * settings
        if counts is not None:
            score = _adjusted(
                score, column, inside, row, choice, counts, biases + row * bias_stride, bias_tokens, bias_values,
                width, most_biases, prompted,
            )  # fmt: skip
        if tl.load(choice) > 0.0:
            tl.store(scores + line * width + column, score, mask=inside)
    # A maximum passes over NaN.
    lost = tl.sum(tl.where(score == score, 0, 1), axis=0) > 0
    peak, place = tl.max(score, axis=0, return_indices=True)
    tl.store(peaks + kept, tl.where(lost, float("inf"), peak))
    tl.store(places + kept, segment * block + place)


@triton.jit
def _race(
    scores: tl.tensor,
    order: tl.tensor,
    choices: tl.tensor,
    top_k: tl.tensor,
    keys: tl.tensor,
    peaks: tl.tensor,
    races: tl.tensor,
    winners: tl.tensor,
    masses: tl.tensor,
    width: tl.tensor,
    k_stride: tl.tensor,
    settings: tl.constexpr,
    segments: tl.constexpr,
    block: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per row that draws from all tokens and segment: who is ahead in it, and the mass of all."""
    begin(pdl)
    wait(pdl)
    line, segment, count = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    row = line
    if order is not None:
        row = tl.load(order + line)
    temperature = tl.load(choices + row * settings).to(tl.float32)
    k = tl.load(top_k + row * k_stride)
    if (temperature > 0.0) & ((k <= 0) | (k >= width)):
        number = tl.arange(0, segments)
        top = tl.max(tl.load(peaks + line * count + number, mask=number < count, other=float("-inf")), axis=0)
        column = segment * block + tl.arange(0, block)
        score = tl.load(scores + line * width + column, mask=column < width, other=float("-inf"))
        score = tl.div_rn(score - top, temperature)
        share = tl.load(choices + row * settings + 2).to(tl.float32)
        floor = tl.where(share > 0.0, tl.log(tl.maximum(share, 1e-38)), float("-inf"))
        noise = gumbel(tl.load(keys + 2 * line), tl.load(keys + 2 * line + 1), column)
        race, place = tl.max(tl.where(score >= floor, score + noise, float("-inf")), axis=0, return_indices=True)
        kept = line * count + segment
        tl.store(races + kept, race)
        tl.store(winners + kept, segment * block + place)
        tl.store(masses + kept, tl.sum(tl.exp(score).to(tl.float64), axis=0))


@triton.jit
def _kth(
    scores: tl.tensor,
    peak: tl.tensor,
    place: tl.tensor,
    number: tl.tensor,
    k: tl.tensor,
    top: tl.tensor,
    temperature: tl.tensor,
    width: tl.tensor,
    block: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Score and id of the k-th token, by taking the likeliest of all segments' likeliest away k times.

    `peak` and `place` are vectors with an element per segment, `number` its number.
    """
    value = tl.max(peak, axis=0)
    token = tl.min(tl.where(peak == value, place, width), axis=0)
    taken = 1
    while (taken < k) & (value > float("-inf")):
        segment = token // block
        column = segment * block + tl.arange(0, block)
        score = tl.load(scores + column, mask=column < width, other=float("-inf"))
        score = tl.div_rn(score - top, temperature)
        after = (score < value) | ((score == value) & (column > token))
        following, at = tl.max(tl.where(after, score, float("-inf")), axis=0, return_indices=True)
        peak = tl.where(number == segment, following, peak)
        place = tl.where(number == segment, segment * block + at, place)
        value = tl.max(peak, axis=0)
        token = tl.min(tl.where(peak == value, place, width), axis=0)
        taken += 1
    return value, token


@triton.jit
def _before(
    scores: tl.tensor,
    peaks: tl.tensor,
    value: tl.tensor,
    token: tl.tensor,
    top: tl.tensor,
    temperature: tl.tensor,
    floor: tl.tensor,
    high: tl.tensor,
    low: tl.tensor,
    width: tl.tensor,
    count: tl.tensor,
    block: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Of the tokens before the one with this score and id: their mass, and who is ahead, by score and id."""
    masses = tl.zeros([block], tl.float64)
    races = tl.full([block], float("-inf"), tl.float32)
    ahead = tl.zeros([block], tl.int32)
    for segment in range(0, count):
        if tl.div_rn(tl.load(peaks + segment) - top, temperature) >= value:
            column = segment * block + tl.arange(0, block)
            score = tl.load(scores + column, mask=column < width, other=float("-inf"))
            score = tl.div_rn(score - top, temperature)
            inside = (score > value) | ((score == value) & (column < token))
            masses += tl.where(inside, tl.exp(score).to(tl.float64), 0.0)
            race = tl.where(inside & (score >= floor), score + gumbel(high, low, column), float("-inf"))
            ahead = tl.where(race > races, column, ahead)
            races = tl.maximum(races, race)
    best = tl.max(races, axis=0)
    winner = tl.min(tl.where(races == best, ahead, width), axis=0)
    score = tl.div_rn(tl.load(scores + winner, mask=winner < width, other=float("-inf")) - top, temperature)
    return tl.sum(masses, axis=0), score, winner


@triton.jit
def _choose(
    logits: tl.tensor,
    scores: tl.tensor,
    order: tl.tensor,
    choices: tl.tensor,
    top_k: tl.tensor,
    keys: tl.tensor,
    peaks: tl.tensor,
    places: tl.tensor,
    races: tl.tensor,
    winners: tl.tensor,
    masses: tl.tensor,
    raw_peaks: tl.tensor,
    raw_sums: tl.tensor,
    chosen: tl.tensor,
    logprobs: tl.tensor,
    width: tl.tensor,
    count: tl.tensor,
    k_stride: tl.tensor,
    settings: tl.constexpr,
    segments: tl.constexpr,
    block: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per row, of what its `count` segments gave."""
    begin(pdl)
    wait(pdl)
    line = tl.program_id(0).to(tl.int64)
    number = tl.arange(0, segments)
    there = number < count
    kept = line * count + number
    peak = tl.load(peaks + kept, mask=there, other=float("-inf"))
    place = tl.load(places + kept, mask=there, other=0)
    top = tl.max(peak, axis=0)
    token = tl.min(tl.where(peak == top, place, width), axis=0)
    sound = (top > float("-inf")) & (top < float("inf"))
    if choices is not None:
        row = line
        if order is not None:
            row = tl.load(order + line)
        choice = choices + row * settings
        temperature = tl.load(choice).to(tl.float32)
        if sound & (temperature > 0.0):
            mine, share = scores + line * width, tl.load(choice + 2).to(tl.float32)
            floor = tl.where(share > 0.0, tl.log(tl.maximum(share, 1e-38)), float("-inf"))
            high, low = tl.load(keys + 2 * line), tl.load(keys + 2 * line + 1)
            k, top_p = tl.load(top_k + row * k_stride), tl.load(choice + 1)
            if (k > 0) & (k < width):
                scaled = tl.div_rn(peak - top, temperature)
                last, least = _kth(mine, scaled, place, number, k, top, temperature, width, block)
                mass, value, token = _before(
                    mine, peaks + line * count, last, least + 1, top, temperature, floor, high, low, width, count, block
                )
            else:
                race = tl.load(races + kept, mask=there, other=float("-inf"))
                winner = tl.load(winners + kept, mask=there, other=0)
                token = tl.min(tl.where(race == tl.max(race, axis=0), winner, width), axis=0)
                value = tl.div_rn(tl.load(mine + token) - top, temperature)
                mass = tl.sum(tl.load(masses + kept, mask=there, other=0.0), axis=0)
            kept_mass = tl.where(top_p < 1.0, top_p * mass, float("inf"))
            ahead, next_value, next_token = mass, value, token
            settled = top_p >= 1.0
            while not settled:
                ahead, next_value, next_token = _before(
                    mine, peaks + line * count, value, token, top, temperature, floor, high, low, width, count, block
                )
                settled = ahead < kept_mass
                value = tl.where(settled, value, next_value)
                token = tl.where(settled, token, next_token)
    if logprobs is not None:
        raw = tl.load(raw_peaks + kept, mask=there, other=float("-inf"))
        base = tl.max(raw, axis=0)
        total = tl.sum(tl.load(raw_sums + kept, mask=there, other=0.0) * tl.exp(raw - base), axis=0)
        logit = tl.load(logits + line * width + tl.where(sound, token, 0)).to(tl.float32)
        tl.store(logprobs + line, logit - base - tl.log(total))
    tl.store(chosen + line, tl.where(sound, token, -1).to(tl.int64))


def likeliest(logits: Tensor) -> Tensor:
    """See Kernels."""
    return _chosen(logits.contiguous(), None, None, None, None, None)[0]


def draw(logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, keys: Tensor) -> Tensor:
    """See Drawing."""
    choices = torch.stack([temperature.double(), top_p, min_p], dim=1)
    return _chosen(logits.contiguous(), None, choices, top_k, keys.contiguous(), None)[0]


def choose(logits: Tensor, state: RowState, order: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """See RowKernels."""
    chosen, logprobs = _chosen(logits, order, state.choices, state.numbers[:, TOP_K], keys, state)
    assert logprobs is not None
    return chosen, logprobs


def _chosen(
    logits: Tensor,
    order: Tensor | None,
    choices: Tensor | None,
    top_k: Tensor | None,
    keys: Tensor | None,
    state: RowState | None,
) -> tuple[Tensor, Tensor | None]:
    """Tokens of the rows, and with `state` their log-probabilities."""
    rows, width = logits.shape
    chosen = torch.empty(rows, dtype=torch.int64, device=logits.device)
    logprobs = torch.empty_like(chosen, dtype=torch.float32) if state is not None else None
    if not rows:
        return chosen, logprobs
    count = triton.cdiv(width, _SEGMENT)
    segments = triton.next_power_of_2(count)
    block = min(_SEGMENT, triton.next_power_of_2(width))

    def each(dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(rows, count, dtype=dtype, device=logits.device)

    peaks, places = each(), each(torch.int32)
    raw_peaks, raw_sums = (each(), each()) if state is not None else (None, None)
    scores = torch.empty_like(logits, dtype=torch.float32) if choices is not None else None
    settings = choices.shape[1] if choices is not None else 0
    counts, biases, bias_tokens, bias_values = (
        (state.counts, state.numbers[:, BIASED], state.bias_tokens, state.bias_values)
        if state is not None
        else (None, None, None, None)
    )
    _survey[(rows, count)](
        logits, order, choices, counts, biases, bias_tokens, bias_values, scores, peaks, places, raw_peaks, raw_sums,
        width, biases.stride(0) if biases is not None else 0, BIASES, PROMPTED, settings, block,
        **overlapping(),
    )  # fmt: skip
    races, winners, masses, stride = None, None, None, 0
    if choices is not None and top_k is not None:
        races, winners, masses, stride = each(), each(torch.int32), each(torch.float64), top_k.stride(0)
        _race[(rows, count)](
            scores, order, choices, top_k, keys, peaks, races, winners, masses, width, stride, settings, segments,
            block, **overlapping(),
        )  # fmt: skip
    _choose[(rows,)](
        logits, scores, order, choices, top_k, keys, peaks, places, races, winners, masses, raw_peaks, raw_sums, chosen,
        logprobs, width, count, stride, settings, segments, block, num_warps=8, **overlapping(),
    )  # fmt: skip
    return chosen, logprobs
