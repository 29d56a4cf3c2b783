"""Steps on rows in plain torch, on any device: the oracle of the tests, and what a step on the CPU is made of there."""

from __future__ import annotations

import torch
from torch import Tensor

from headgate.engine.kernels.device_rows import (
    BIASED,
    BIASES,
    FREQUENCY,
    MIN_P,
    POSITION,
    PRESENCE,
    PROMPTED,
    REPETITION,
    STREAM,
    TEMPERATURE,
    TOKEN,
    TOP_K,
    TOP_P,
    DeviceStep,
    RowState,
)
from headgate.engine.kernels.reference_plan import Decodes, ReferencePlan
from headgate.engine.sampling.noise import gumbel, step_keys
from headgate.engine.sampling.truncation import scaled, truncate


class ReferenceRows:
    """Implements the RowKernels protocol."""

    def begin(self, state: RowState, order: Tensor) -> DeviceStep:
        """See RowKernels. Attention reads as many keys of each as its table has room for, and masks most of them."""
        numbers, tables, size = state.numbers[order], state.tables[order].long(), state.block_size
        positions = numbers[:, POSITION]
        offsets = torch.arange(size, device=order.device)
        seen = (tables.unsqueeze(-1) * size + offsets).flatten(1)
        distance = positions.unsqueeze(1) - torch.arange(seen.shape[1], device=order.device)
        plan = ReferencePlan([Decodes(torch.arange(len(order), device=order.device), seen, distance)], [])
        slots = seen.gather(1, positions.unsqueeze(1)).squeeze(1)
        # The token that is drawn has the next position.
        return DeviceStep(numbers[:, TOKEN], positions, slots, step_keys(numbers[:, STREAM], positions + 1), plan)

    def choose(self, logits: Tensor, state: RowState, order: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """See RowKernels. Every row is sorted."""
        width, choices = logits.shape[1], state.choices[order]
        wide = logits.float()
        adjusted = _adjusted(wide.clone(), state, order)
        top = adjusted.amax(-1)
        greedy = choices[:, TEMPERATURE : TEMPERATURE + 1] == 0
        temperature = choices[:, TEMPERATURE : TEMPERATURE + 1].float().masked_fill(greedy, 1.0)
        top_k = state.numbers[order, TOP_K].unsqueeze(1)
        top_k = torch.where((top_k > 0) & (top_k < width), top_k, width)
        kept = truncate(scaled(adjusted, temperature), top_k, choices[:, TOP_P : TOP_P + 1], width)
        floor = choices[:, MIN_P : MIN_P + 1].float().log()
        race = kept.scores.masked_fill(kept.scores < floor, -torch.inf)
        race += gumbel((keys[:, :1], keys[:, 1:]), kept.token_ids.int()).masked_fill(greedy, 0.0)
        drawn = kept.token_ids.gather(1, race.argmax(-1, keepdim=True))
        logprobs = wide.gather(1, drawn).squeeze(1) - wide.logsumexp(-1)
        return torch.where(top.isfinite(), drawn.squeeze(1), -1), logprobs

    def advance(self, state: RowState, order: Tensor, chosen: Tensor, logprobs: Tensor, out: Tensor) -> None:
        """See RowKernels."""
        out[0].copy_(chosen)
        out[1].copy_(logprobs)
        moves = (order != state.rows).long()
        tokens = chosen.clamp(min=0) * moves
        state.numbers[order, TOKEN] = tokens
        state.numbers[order, POSITION] += moves
        state.counts.index_put_((order, tokens), moves.int(), accumulate=True)


def _adjusted(scores: Tensor, state: RowState, order: Tensor) -> Tensor:
    """See `processors.process`; `scores` may be written to."""
    choices, counts = state.choices[order], state.counts[order]
    biased = torch.arange(BIASES, device=order.device) < state.numbers[order, BIASED].unsqueeze(1)
    scores.scatter_add_(1, state.bias_tokens[order].long(), state.bias_values[order].masked_fill(~biased, 0.0))
    repetition = choices[:, REPETITION : REPETITION + 1].float()
    scores = torch.where(counts > 0, torch.where(scores < 0, scores * repetition, scores / repetition), scores)
    times = counts % PROMPTED
    loss = choices[:, PRESENCE : PRESENCE + 1] + choices[:, FREQUENCY : FREQUENCY + 1] * times
    return torch.where(times > 0, scores - loss.float(), scores)
