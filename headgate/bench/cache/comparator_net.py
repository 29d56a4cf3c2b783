"""A network of `headgate.cache.embedding.comparator_network`, as it is fitted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as fn

from headgate.cache.embedding.comparator_network import HEAD, NAMES, rarity

WIDTH = 32
HIDDEN = 48
_BATCH = 128
_WINDOW = 16 * _BATCH
"""Pairs among which those of similar length are put together: a batch is computed as long as its longest text."""
_DROPOUT = 0.3
_DECAY = 0.1
_LEARNING_RATE = 4e-3


@dataclass(frozen=True, slots=True)
class Padded:
    """Encoded texts of one length: `ids` `[texts, tokens]` with -1 where there is none, `states` `[texts, tokens, n]`,
    float16, `vectors` `[texts, dim]`."""

    ids: Tensor
    states: Tensor
    rare: Tensor
    vectors: Tensor

    @classmethod
    def of(
        cls,
        ids: Sequence[NDArray[np.int64]],
        states: Sequence[NDArray[np.float16]],
        vectors: NDArray[np.float32],
        most: int,
    ) -> Padded:
        """Texts padded to `most` wordpieces; what is longer is cut."""
        all_ids = np.full((len(ids), most), -1, np.int64)
        all_states = np.zeros((len(ids), most, states[0].shape[1]), np.float16)
        for row, (its_ids, its_states) in enumerate(zip(ids, states, strict=True)):
            all_ids[row, : len(its_ids)] = its_ids[:most]
            all_states[row, : len(its_ids)] = its_states[:most]
        return cls(
            torch.from_numpy(all_ids),
            torch.from_numpy(all_states),
            torch.from_numpy(rarity(all_ids)),
            torch.from_numpy(vectors),
        )


class Net(nn.Module):
    """See `headgate.cache.embedding.comparator_network`: the same sums, for many pairs at once and with gradients."""

    def __init__(self, states: int) -> None:
        super().__init__()
        self.project = nn.Linear(states, WIDTH, bias=False)
        self.sharpness = nn.Parameter(torch.tensor([2.0]))
        self.same = nn.Parameter(torch.tensor([1.0]))
        self.f1 = nn.Linear(4 * WIDTH + 4, HIDDEN)
        self.f2 = nn.Linear(HIDDEN, HIDDEN)
        self.o1 = nn.Linear(2 * HIDDEN + 2, HIDDEN)
        self.o2 = nn.Linear(HIDDEN, 1)
        self.drop = nn.Dropout(_DROPOUT)

    def forward(self, texts: Padded, first: Tensor, second: Tensor) -> Tensor:
        """Log odds `[pairs]` for pairs of rows."""
        here, there = (int((texts.ids[rows] >= 0).sum(1).max()) for rows in (first, second))
        a, b = (
            fn.normalize(self.project(texts.states[rows, :length].float()), dim=-1)
            for rows, length in ((first, here), (second, there))
        )
        ids_a, ids_b = texts.ids[first, :here], texts.ids[second, :there]
        rare_a, rare_b = texts.rare[first, :here], texts.rare[second, :there]
        both = self._side(a, b, ids_a, ids_b, rare_a) + self._side(b, a, ids_b, ids_a, rare_b)
        lengths = [(ids >= 0).sum(1) for ids in (ids_a, ids_b)]
        cosine = (texts.vectors[first] * texts.vectors[second]).sum(1)
        uneven = (lengths[0] - lengths[1]).abs() / (lengths[0] + lengths[1])
        pooled = torch.cat([both, cosine[:, None], uneven[:, None]], 1)
        odds: Tensor = self.o2(self.drop(fn.gelu(self.o1(pooled), approximate="tanh")))[:, 0]
        return odds

    def _side(self, a: Tensor, b: Tensor, ids: Tensor, partners: Tensor, rare: Tensor) -> Tensor:
        cosine = a @ b.transpose(1, 2)
        absent = (partners < 0)[:, None, :]
        equal = (ids[:, :, None] == partners[:, None, :]) & ~absent
        pull = (self.sharpness.exp() * cosine + self.same * equal).masked_fill(absent, -1e4).softmax(-1)
        found = pull @ b
        closest = cosine.masked_fill(absent, -1.0).amax(-1)
        about = torch.stack([closest, equal.any(-1).float(), rare, closest * rare], -1)
        seen = torch.cat([a, found, (a - found).abs(), a * found, about], -1)
        hidden = fn.gelu(self.f1(self.drop(seen)), approximate="tanh")
        hidden = fn.gelu(self.f2(self.drop(hidden)), approximate="tanh") * (ids >= 0)[..., None]
        return torch.cat([hidden.sum(1) / 4.0, hidden.amax(1).clamp(min=0.0)], 1)

    def plain(self) -> dict[str, NDArray[np.float32]]:
        """The weights as `Network` takes them."""
        named = {"project": self.project.weight, "sharpness": self.sharpness, "same": self.same}
        named |= {name: value for name, value in self.named_parameters() if name in (*NAMES, *HEAD)}
        return {name: value.detach().numpy() for name, value in named.items()}


def fit(texts: Padded, pairs: NDArray[np.int64], right: NDArray[np.bool_], *, steps: int, seed: int) -> Net:
    """A network fitted to pairs `[n, 2]` of rows in batches of 128, `steps` of them, about in the order given."""
    torch.manual_seed(seed)
    net = Net(texts.states.shape[2])
    optimizer = torch.optim.AdamW(net.parameters(), lr=_LEARNING_RATE, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, total_steps=steps)
    labels = torch.from_numpy(right.astype(np.float32))
    rows = torch.from_numpy(pairs)
    lengths = (texts.ids >= 0).sum(1)[rows].amax(1)
    for at in itertools.islice(_batches(lengths), steps):
        loss = fn.binary_cross_entropy_with_logits(net(texts, rows[at, 0], rows[at, 1]), labels[at])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotation for it
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return net.eval()


def _batches(lengths: Tensor) -> Iterator[Tensor]:
    """Places of `_BATCH` pairs of similar length at a time, again and again."""
    for start in itertools.count(0, _WINDOW):
        window = torch.arange(start, start + _WINDOW) % len(lengths)
        parts = torch.split(window[lengths[window].argsort(stable=True)], _BATCH)
        yield from (parts[at] for at in torch.randperm(len(parts)).tolist())


def log_odds(net: Net, texts: Padded, pairs: NDArray[np.int64]) -> NDArray[np.float32]:
    """Log odds `[n]` for pairs `[n, 2]` of rows."""
    rows = torch.from_numpy(pairs)
    with torch.inference_mode():
        parts = [net(texts, part[:, 0], part[:, 1]).numpy() for part in torch.split(rows, 512)]
    return np.concatenate(parts)
