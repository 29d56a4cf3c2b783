"""One network of the comparator: what two texts' wordpieces find in each other, weighed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.cache.embedding.comparator_native import LONGEST, NativeComparator

Floats = NDArray[np.float32]
Unit = NDArray[np.int8]
"""Projected encoder states of unit norm, times 127: `[tokens, width]`."""

INT8 = 127.0
# The vocabulary of BERT is sorted by frequency behind its first, reserved, ids.
_FIRST_WORD = 1995
_LAST_WORD = 30521
_HALF, _ONE = np.float32(0.5), np.float32(1.0)
_TANH_SCALE, _TANH_CUBE = np.float32(math.sqrt(2.0 / math.pi)), np.float32(0.044715)
NAMES = ("project", "sharpness", "same", "f1.weight", "f1.bias", "f2.weight", "f2.bias")
"""Weights that say what a wordpiece keeps and finds."""
HEAD = ("o1.weight", "o1.bias", "o2.weight", "o2.bias")


class Network:
    """Fitted weights. Safe to use from several threads.

    Source: Parikh, Täckström, Das and Uszkoreit, A decomposable attention model (2016), over frozen encoder states.
    """

    def __init__(self, weights: Mapping[str, Floats], *, native: bool = True) -> None:
        """A network with these weights, float32, by the names in `NAMES` and `HEAD`.

        Args:
            weights: as they were fitted.
            native: whether to compute in C++ where that is compiled and made for such sizes; in numpy otherwise.
        """
        self.weights = {name: np.ascontiguousarray(weights[name], dtype=np.float32) for name in (*NAMES, *HEAD)}
        self.width: int = self.weights["project"].shape[0]
        self.states: int = self.weights["project"].shape[1]
        """Length of an encoder state, all its layers together."""
        self._native: NativeComparator | None = None
        if native and NativeComparator.fits(self.weights):
            self._native = NativeComparator(self.weights, rarity(np.arange(1 << 16)))

    def project(self, texts: Sequence[Floats]) -> Unit:
        """Of the encoder states `[tokens, states]` of several texts, one after another."""
        if self._native is not None:
            return self._native.sketches(texts)
        projected = np.concatenate(texts) @ self.weights["project"].T
        projected /= np.linalg.norm(projected, axis=1, keepdims=True) + 1e-9
        unit: Unit = np.rint(projected * INT8).astype(np.int8)
        return unit

    def compare(self, ids: Sequence[NDArray[np.uint16]], states: Sequence[Unit], cosines: Sequence[float]) -> Floats:
        """Log odds `[stored]` that one answer serves both texts, as the pairs it was fitted on have it.

        Args:
            ids: of each text's wordpieces; the first text is the asked one, the others are stored.
            states: of the same wordpieces.
            cosines: of the sentence vectors, one for each of the stored.
        """
        longest = max(len(its) for its in ids[1:])
        if self._native is not None and max(longest, len(ids[0])) <= LONGEST:
            return self._native.compare(ids, states, cosines)
        rows, own = len(ids) - 1, len(ids[0])
        a = np.broadcast_to(states[0].astype(np.float32) / INT8, (rows, own, self.width))
        b = np.zeros((rows, longest, self.width), np.float32)
        partners = np.full((rows, longest), -1, np.int64)
        for row, (its_ids, its_states) in enumerate(zip(ids[1:], states[1:], strict=True)):
            b[row, : len(its_ids)] = its_states
            partners[row, : len(its_ids)] = its_ids
        b /= INT8
        mine = np.broadcast_to(ids[0].astype(np.int64), (rows, own))
        cosine = a @ b.transpose(0, 2, 1)
        equal = mine[:, :, None] == partners[:, None, :]
        one = self._side(a, b, cosine, equal, mine, partners)
        other_side = self._side(b, a, cosine.transpose(0, 2, 1), equal.transpose(0, 2, 1), partners, mine)
        lengths = (partners >= 0).sum(axis=1)
        shape = np.stack([np.asarray(cosines, np.float32), np.abs(own - lengths) / (own + lengths)], axis=1)
        both = np.concatenate([one + other_side, shape], axis=1, dtype=np.float32)
        hidden = _gelu(both @ self.weights["o1.weight"].T + self.weights["o1.bias"])
        odds: Floats = (hidden @ self.weights["o2.weight"].T + self.weights["o2.bias"])[:, 0]
        return odds

    def _side(
        self,
        a: Floats,
        b: Floats,
        cosine: Floats,
        equal: NDArray[np.bool_],
        ids: NDArray[np.int64],
        partners: NDArray[np.int64],
    ) -> Floats:
        """What the wordpieces of one text find in the other: `[rows, 2 * hidden]`, the sum and the largest."""
        w = self.weights
        absent = (partners < 0)[:, None, :]
        pull = np.where(absent, -1e4, math.exp(float(w["sharpness"][0])) * cosine + w["same"][0] * equal)
        pull = np.exp(pull - pull.max(axis=2, keepdims=True))
        pull /= pull.sum(axis=2, keepdims=True)
        found: Floats = pull.astype(np.float32) @ b
        closest = np.where(absent, -1.0, cosine).max(axis=2).astype(np.float32)
        rare = rarity(ids)
        about = [closest, equal.any(axis=2).astype(np.float32), rare, closest * rare]
        seen = np.concatenate([a, found, np.abs(a - found), a * found, np.stack(about, axis=2)], axis=2)
        wide = _gelu(seen @ w["f1.weight"].T + w["f1.bias"])
        hidden = _gelu(wide @ w["f2.weight"].T + w["f2.bias"])
        hidden = hidden * (ids >= 0)[:, :, None].astype(np.float32)
        # At least 0, as where a text is shorter than its neighbours: so those do not matter.
        largest = np.maximum(hidden.max(axis=1), 0.0)
        summed: Floats = np.concatenate([hidden.sum(axis=1) / 4.0, largest], axis=1, dtype=np.float32)
        return summed


def rarity(ids: NDArray[np.int64]) -> Floats:
    """0 for the commonest wordpieces, 1 for the rarest, by their place in the vocabulary."""
    rank = np.clip(ids - _FIRST_WORD, 0, None)
    rare: Floats = (np.log1p(rank) / math.log1p(_LAST_WORD - _FIRST_WORD)).clip(0.0, 1.0).astype(np.float32)
    return rare


def _gelu(x: Floats) -> Floats:
    # By the tanh, which numpy has; the network is fitted with the same.
    bent: Floats = np.tanh(_TANH_SCALE * (x + _TANH_CUBE * x * x * x))
    smooth: Floats = _HALF * x * (_ONE + bent)
    return smooth
