"""From samples to training batches: an endless stream, bucketed by length, that can be resumed at any batch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

from headgate.engine.demo.tasks import generate
from headgate.engine.demo.tokenizer import END_OF_TEXT, conversation_segments, token_id

CHUNK = 4096
"""Samples generated and bucketed together."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Right-padded conversations.

    `ids` and `mask` are int64 and bool [rows, length]; the mask is False on padding. `positions` int64 [answers] index
    the flattened [rows * length] hidden states whose next token is part of an answer; `targets` int64 [answers] are
    those tokens. Attention is causal and padding comes last, so no answer token ever sees padding.
    """

    ids: torch.Tensor
    mask: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the stream: the chunk, and how many of its batches were used."""

    chunk: int = 0
    used: int = 0


Encoded = tuple[list[int], list[bool]]


def encode(tokenizer: Tokenizer, segments: list[tuple[str, bool]]) -> Encoded:
    """Token ids of a conversation, and for each whether it belongs to an answer."""
    ids: list[int] = []
    answer: list[bool] = []
    for (_, learned), encoding in zip(segments, tokenizer.encode_batch([text for text, _ in segments]), strict=True):
        ids += encoding.ids
        answer += [learned] * len(encoding.ids)
    return ids, answer


def stream(
    tokenizer: Tokenizer, *, seed: int, tokens: int, start: Cursor = Cursor(), chunk: int = CHUNK
) -> Iterator[tuple[Batch, Cursor]]:
    """Batches of about `tokens` tokens (padding included) from the train split, each with the cursor that follows it.

    The order depends only on `seed`; starting from a cursor continues exactly where it was taken.
    """
    pad = token_id(tokenizer, END_OF_TEXT)
    number, used = start.chunk, start.used
    while True:
        # Chunks have seeds of their own, so that any one can be made without its predecessors.
        samples = generate(chunk, seed=seed * 1_000_003 + number)
        rows = [encode(tokenizer, conversation_segments(sample)) for sample in samples]
        buckets = _buckets(rows, tokens, random.Random(f"{seed}/{number}"))
        for index in range(used, len(buckets)):
            yield collate([rows[row] for row in buckets[index]], pad), Cursor(number, index + 1)
        number, used = number + 1, 0


def _buckets(rows: list[Encoded], tokens: int, rng: random.Random) -> list[list[int]]:
    """Row numbers grouped by similar length, each group within `tokens` after padding, in random order."""
    order = sorted(range(len(rows)), key=lambda row: (len(rows[row][0]), rng.random()))
    buckets: list[list[int]] = [[]]
    for row in order:
        # Sorted by length, so this row would be the longest of its bucket.
        if buckets[-1] and len(rows[row][0]) * (len(buckets[-1]) + 1) > tokens:
            buckets.append([])
        buckets[-1].append(row)
    rng.shuffle(buckets)
    return buckets


def collate(rows: list[Encoded], pad: int) -> Batch:
    """Encoded conversations as one right-padded batch."""
    length = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), length), pad, dtype=torch.int64)
    mask = torch.zeros((len(rows), length), dtype=torch.bool)
    positions: list[int] = []
    targets: list[int] = []
    for row, (tokens, answer) in enumerate(rows):
        ids[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.int64)
        mask[row, : len(tokens)] = True
        for place in range(1, len(tokens)):
            if answer[place]:
                positions.append(row * length + place - 1)
                targets.append(tokens[place])
    return Batch(ids, mask, torch.tensor(positions, dtype=torch.int64), torch.tensor(targets, dtype=torch.int64))
