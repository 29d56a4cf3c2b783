"""Steps on rows: what they choose, against float64, and what they make of their rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from headgate.engine.kernels.checks.inputs import Draw
from headgate.engine.kernels.checks.line import Line
from headgate.engine.kernels.device_rows import (
    BIASED,
    POSITION,
    PROMPTED,
    STREAM,
    TOP_K,
    DeviceStep,
    RowKernels,
    RowState,
)
from headgate.engine.kernels.reference_rows import ReferenceRows
from headgate.engine.sampling.noise import gumbel

_NEAR = 1e-3
"""Most by which a chosen token's score may lie behind the best by float64: noise of 31 bits, logits of single ones."""
SETTINGS: dict[str, tuple[tuple[float, float, float, float, float, float], int]] = {
    "greedy": ((0.0, 1.0, 0.0, 1.0, 0.0, 0.0), 0),
    "temperature": ((1.0, 1.0, 0.0, 1.0, 0.0, 0.0), 0),
    "top_k, top_p": ((0.6, 0.95, 0.0, 1.0, 0.0, 0.0), 20),
    "top_k": ((1.5, 1.0, 0.0, 1.0, 0.0, 0.0), 300),
    "top_p": ((1.0, 0.9, 0.0, 1.0, 0.0, 0.0), 0),
    "min_p": ((1.0, 1.0, 0.05, 1.0, 0.0, 0.0), 0),
    "penalties": ((0.8, 0.9, 0.0, 1.2, 0.5, 0.3), 0),
}
"""Temperature, top_p, min_p, repetition, presence, frequency penalty; and top_k."""


def filled_rows(draw: Draw, each: int, vocab_size: int) -> RowState:
    """`each` rows with all of `SETTINGS`, at positions up to 2,000."""
    rows, blocks = each * len(SETTINGS), 128
    state = RowState.empty(rows, blocks, vocab_size, 16, rows * blocks, draw.device)
    for number, (choices, top_k) in enumerate(SETTINGS.values()):
        mine = slice(number * each, (number + 1) * each)
        state.choices[mine] = torch.tensor(choices, dtype=torch.float64, device=draw.device)
        state.numbers[mine, TOP_K] = top_k
    numbers = torch.tensor([draw.order(1 << 11) for _ in range(rows)], device=draw.device)
    state.numbers[:rows, POSITION] = numbers[:, 0]
    state.numbers[:rows, STREAM] = (numbers[:, 1:6] * 2_654_435_761).prod(1)
    state.numbers[:rows, BIASED] = 3
    state.tables[:rows] = torch.tensor(draw.order(rows * blocks), device=draw.device).view(rows, blocks).int()
    biased = [draw.order(vocab_size)[:3] for _ in range(rows)]
    state.bias_tokens[:rows, :3] = torch.tensor(biased, dtype=torch.int32, device=draw.device)
    state.bias_values[:rows, :3] = 5.0
    state.counts[:rows, ::7] = 2
    state.counts[:rows, ::5] += PROMPTED
    return state


def row_checks(kernels: RowKernels, draw: Draw, vocab_size: int = 151_936, each: int = 4) -> Iterator[Line]:
    """A line per kind of settings, and of what else a step does."""
    reference, state = ReferenceRows(), filled_rows(draw, each, vocab_size)
    order = torch.tensor([*draw.order(state.rows), state.rows], device=draw.device)
    begun, expected = kernels.begin(state, order), reference.begin(state, order)
    for part in ("tokens", "positions", "slots", "keys"):
        yield _same(f"a step's {part}", getattr(begun, part), getattr(expected, part))
    logits = draw(len(order), vocab_size, scale=3.0)
    logits[:, 5:9] = logits[:, 4:5]
    chosen, logprobs = kernels.choose(logits, state, order, begun.keys)
    again, _ = kernels.choose(logits, state, order, begun.keys)
    yield _same("tokens, twice", chosen, again)
    yield from _choice_lines(chosen, logits, state, order, begun, each)
    wanted = logits.double().log_softmax(-1).gather(1, chosen.unsqueeze(1)).squeeze(1)
    worst = float((logprobs.double() - wanted).abs().max())
    yield Line("log-probabilities", f"off by {worst:.1e} at most", {"error": worst}, worst <= 1e-4)
    broken = logits.clone()
    broken[0, 70], broken[1, -1], broken[2] = math.nan, math.inf, -math.inf
    lost, _ = kernels.choose(broken, state, order, begun.keys)
    yield Line("what is not finite", f"{lost[:4].tolist()}", ok=bool((lost[:3] == -1).all() and lost[3] == chosen[3]))
    moved, exact = _copy(state), _copy(state)
    told, wanted = (logits.new_full((2, len(order)), math.nan, dtype=torch.float64) for _ in range(2))
    kernels.advance(moved, order, chosen, logprobs, told)
    reference.advance(exact, order, chosen, logprobs, wanted)
    yield _same("what is told", told, wanted)
    yield _same("rows that went on", moved.numbers, exact.numbers)
    counted = [row for row in range(state.rows) if row // each == list(SETTINGS).index("penalties")]
    yield _same("counts", moved.counts[counted], exact.counts[counted])


def _choice_lines(
    chosen: Tensor, logits: Tensor, state: RowState, order: Tensor, begun: DeviceStep, each: int
) -> Iterator[Line]:
    """How far each chosen token is behind the best one by float64, row after row on the host."""
    behind = dict.fromkeys(SETTINGS, 0.0)
    for line, row in enumerate(order[:-1].tolist()):
        name = list(SETTINGS)[row // each]
        score = race(logits[line].cpu(), state, row, begun.keys[line].cpu())
        behind[name] = max(behind[name], float(score.max() - score[int(chosen[line])]))
    for name, most in behind.items():
        yield Line(f"chosen by {name}", f"behind the best by {most:.1e}", {"behind": most}, most <= _NEAR)


def race(logits: Tensor, state: RowState, row: int, keys: Tensor) -> Tensor:
    """Scores of a row's tokens in float64, noise included, -inf for those that its settings drop."""
    temperature, top_p, min_p, repetition, presence, frequency = state.choices[row].tolist()
    top_k, biased = int(state.numbers[row, TOP_K]), int(state.numbers[row, BIASED])
    score = logits.double()
    score.index_add_(0, state.bias_tokens[row, :biased].cpu().long(), state.bias_values[row, :biased].cpu().double())
    counts = state.counts[row].cpu()
    score = torch.where(counts > 0, torch.where(score < 0, score * repetition, score / repetition), score)
    counts = counts % PROMPTED
    score = torch.where(counts > 0, score - presence - frequency * counts, score)
    if temperature == 0.0:
        return score
    ordered, tokens = ((score - score.max()) / temperature).sort(descending=True, stable=True)
    if top_k:
        ordered[top_k:] = -math.inf
    mass = ordered.exp()
    if top_p < 1.0:
        ordered[mass.cumsum(0) - mass >= top_p * mass.sum()] = -math.inf
    if min_p:
        ordered[ordered < math.log(min_p)] = -math.inf
    noise = gumbel((keys[:1].unsqueeze(1), keys[1:].unsqueeze(1)), tokens.int().unsqueeze(0))[0].double()
    return torch.empty_like(score).index_copy_(0, tokens, ordered + noise)


def _same(name: str, got: Tensor, expected: Tensor) -> Line:
    wrong = int((got != expected).sum())
    return Line(name, "as expected" if not wrong else f"{wrong} of {got.numel()} are others", ok=not wrong)


def _copy(state: RowState) -> RowState:
    return replace(state, numbers=state.numbers.clone(), counts=state.counts.clone())
