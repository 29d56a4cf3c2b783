"""From conversations to training batches of a few fixed shapes, bucketed by length; a stream resumes at any batch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

Encoded = tuple[list[int], list[bool]]
"""Token ids of a conversation, and for each whether it belongs to an answer."""


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

    def to(self, device: torch.device) -> Batch:
        """The batch on that device."""
        return Batch(self.ids.to(device), self.mask.to(device), self.positions.to(device), self.targets.to(device))


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a stream: the chunk, and how many of its batches were used."""

    chunk: int = 0
    used: int = 0


Stream = Callable[[Cursor], Iterator[tuple[Batch, Cursor]]]
"""An endless stream of batches from a cursor on, each with the cursor that follows it."""


def encode(tokenizer: Tokenizer, segments: Sequence[tuple[str, bool]]) -> Encoded:
    """Encodes a conversation given in pieces; True marks those the model must produce."""
    ids: list[int] = []
    answer: list[bool] = []
    encodings = tokenizer.encode_batch([text for text, _ in segments], add_special_tokens=False)
    for (_, learned), encoding in zip(segments, encodings, strict=True):
        ids += encoding.ids
        answer += [learned] * len(encoding.ids)
    return ids, answer


def last_answer(row: Encoded) -> int:
    """The place of the first token of the answer that ends a conversation."""
    _, answer = row
    begin = len(answer)
    while begin > 0 and answer[begin - 1]:
        begin -= 1
    return begin


def lengths(tokens: int) -> list[int]:
    """The row lengths of batches of up to `tokens` tokens, ascending: multiples of 8, at most an eighth apart.

    Few, because oneDNN compiles a matrix product for each new shape, which on a CPU takes longer than the product.
    """
    found: list[int] = []
    length = 8
    while length <= tokens:
        found.append(length)
        length += max(8, 1 << (length.bit_length() - 4))
    return found


def stream(
    chunks: Callable[[int], Sequence[Encoded]], *, pad: int, tokens: int, seed: int, together: int = 1
) -> Stream:
    """Batches of `tokens` tokens, padding included, or less by a part of a row, from numbered chunks of rows.

    The order depends only on `seed`, `together` and the chunks; starting from a cursor continues exactly where it was
    taken. Each `together` batches that follow one another have similar lengths, so that processes that share them wait
    little for each other; with 2 or more, batches of a chunk that are left over are not used.
    A row that fits into none of the `lengths` raises `ValueError`.
    """

    def batches(start: Cursor) -> Iterator[tuple[Batch, Cursor]]:
        number, used = start.chunk, start.used
        while True:
            rows = chunks(number)
            buckets = bucketed(rows, tokens, random.Random(f"{seed}/{number}"), together)
            for index in range(used, len(buckets)):
                length, chosen = buckets[index]
                yield collate([rows[row] for row in chosen], pad, length, tokens // length), Cursor(number, index + 1)
            number, used = number + 1, 0

    return batches


def bucketed(
    rows: Sequence[Encoded], tokens: int, rng: random.Random, together: int = 1
) -> list[tuple[int, list[int]]]:
    """Row numbers grouped by similar length, each group with the length its rows are padded to, in random order.

    Each `together` groups of the order have similar lengths, too; the longest ones are left out if they are too few.
    """
    sizes = lengths(tokens)
    ascending = sorted(range(len(rows)), key=lambda row: (len(rows[row][0]), rng.random()))
    buckets: list[tuple[int, list[int]]] = []
    for row in ascending:
        size = next((size for size in sizes if size >= len(rows[row][0])), None)
        if size is None:
            raise ValueError(
                f"a conversation has {len(rows[row][0])} tokens, a batch holds {tokens}; "
                "raise the tokens of a step or leave such conversations out"
            )
        # Sorted by length, so this row would be the longest of its bucket.
        if not buckets or size * (len(buckets[-1][1]) + 1) > tokens:
            buckets.append((size, []))
        buckets[-1] = (size, [*buckets[-1][1], row])
    order = [buckets[start : start + together] for start in range(0, len(buckets) - together + 1, together)]
    rng.shuffle(order)
    return [bucket for neighbours in order for bucket in neighbours]


def collate(rows: Sequence[Encoded], pad: int, length: int | None = None, count: int | None = None) -> Batch:
    """Encoded conversations as one right-padded batch of `count` rows of `length` (by default as many as there are)."""
    length = length or max(len(ids) for ids, _ in rows)
    ids = torch.full((count or len(rows), length), pad, dtype=torch.int64)
    mask = torch.zeros(ids.shape, dtype=torch.bool)
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
