"""The second signal: which words of two texts find a partner in the other, from what the encoder saw of each word.

The cosine of two sentence vectors says what both are about. It hardly moves when one word is exchanged, which is where
answers go wrong. Here every wordpiece of either text looks for its partner in the other; what the two have in common
and what sets them apart goes through a small network whose weights were fitted on generated pairs.

Source: Parikh, Täckström, Das and Uszkoreit, A decomposable attention model (2016), over frozen encoder states.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from headgate.cache.comparator_native import LONGEST, NativeComparator

Floats = NDArray[np.float32]

MAX_TOKENS = LONGEST
"""Wordpieces of a text that are looked at; a longer text has no sketch and is not compared."""
_MARK = 4
"""Bytes in front of a packed sketch that say which comparator made it."""
_INT8 = 127.0
# The vocabulary of BERT is sorted by frequency behind its first, reserved, ids.
_FIRST_WORD = 1995
_LAST_WORD = 30521
_HALF, _ONE = np.float32(0.5), np.float32(1.0)
_TANH_SCALE, _TANH_CUBE = np.float32(math.sqrt(2.0 / math.pi)), np.float32(0.044715)
NAMES = ("project", "sharpness", "same", "f1.weight", "f1.bias", "f2.weight", "f2.bias")
HEAD = ("o1.weight", "o1.bias", "o2.weight", "o2.bias")


@dataclass(frozen=True, slots=True)
class Sketch:
    """The wordpieces of a text as the comparator needs them: `2 + width` bytes each.

    Attributes:
        ids: `[tokens]`, uint16.
        states: `[tokens, width]`, int8: projected encoder states of unit norm, times 127.
    """

    ids: NDArray[np.uint16]
    states: NDArray[np.int8]

    def to_bytes(self) -> bytes:
        """The ids, then the states."""
        return self.ids.tobytes() + self.states.tobytes()

    @classmethod
    def from_bytes(cls, packed: bytes, width: int) -> Sketch | None:
        """What `to_bytes` wrote; None where it is empty or of another width."""
        tokens, rest = divmod(len(packed), 2 + width)
        if rest or not tokens:
            return None
        ids = np.frombuffer(packed, np.uint16, tokens)
        return cls(ids, np.frombuffer(packed, np.int8, offset=2 * tokens).reshape(tokens, width))


class Comparator:
    """A fitted network. Safe to use from several threads."""

    def __init__(self, weights: Mapping[str, Floats], *, native: bool = True) -> None:
        """A comparator with these weights, float32, by the names in `NAMES` and `HEAD`.

        Args:
            weights: as they were fitted.
            native: whether to compute in C++ where that is compiled and made for such sizes; in numpy otherwise.
        """
        self._w = {name: np.ascontiguousarray(weights[name], dtype=np.float32) for name in (*NAMES, *HEAD)}
        self.width = self._w["project"].shape[0]
        self.states = self._w["project"].shape[1]
        """Length of an encoder state, all its layers together."""
        self.digest = hashlib.blake2b(b"".join(self._w[name].tobytes() for name in NAMES), digest_size=16).digest()
        """Of the weights that a sketch depends on, among others."""
        self._native: NativeComparator | None = None
        if native and NativeComparator.fits(self._w):
            self._native = NativeComparator(self._w, rarity(np.arange(1 << 16)))

    @classmethod
    def load(cls, path: Path) -> Comparator:
        """From a safetensors file."""
        return cls({name: value.astype(np.float32) for name, value in load_file(path).items()})

    def save(self, path: Path) -> None:
        """To a safetensors file, in half precision."""
        save_file({name: value.astype(np.float16) for name, value in self._w.items()}, path)

    def sketch(self, ids: NDArray[np.int64], states: Floats) -> Sketch | None:
        """What to keep of a text; None where it has no wordpiece or too many.

        Args:
            ids: `[tokens]` of the vocabulary, without the marks at either end.
            states: `[tokens, states]`.
        """
        return self.sketches([(ids, states)])[0]

    def sketches(self, texts: Sequence[tuple[NDArray[np.int64], Floats]]) -> list[Sketch | None]:
        """What to keep of each of several texts, as `sketch` says; they are views into one array."""
        fit = [(ids, states) for ids, states in texts if 0 < len(ids) <= MAX_TOKENS]
        every = [states for _, states in fit]
        made = iter(self._project(every) if self._native is None else self._native.sketches(every))
        return [Sketch(ids.astype(np.uint16), next(made)) if 0 < len(ids) <= MAX_TOKENS else None for ids, _ in texts]

    def _project(self, texts: Sequence[Floats]) -> list[NDArray[np.int8]]:
        made = []
        for states in texts:
            projected = states @ self._w["project"].T
            projected /= np.linalg.norm(projected, axis=1, keepdims=True) + 1e-9
            made.append(np.rint(projected * _INT8).astype(np.int8))
        return made

    def pack(self, sketch: Sketch) -> bytes:
        """A sketch of this comparator's as entries keep it: who made it, the ids, the states."""
        return self.digest[:_MARK] + sketch.to_bytes()

    def unpack(self, packed: bytes) -> Sketch | None:
        """What `pack` gave; None where it is empty or another comparator's, by whose weights alone it compares."""
        if packed[:_MARK] != self.digest[:_MARK]:
            return None
        return Sketch.from_bytes(packed[_MARK:], self.width)

    def compare(self, asked: Sketch, stored: Sequence[Sketch], cosines: Sequence[float]) -> Floats:
        """Log odds `[stored]` that one answer serves both texts, as the pairs it was fitted on have it.

        Args:
            asked: the one text.
            stored: the others.
            cosines: of the sentence vectors, one for each of the others.
        """
        longest = max(len(other.ids) for other in stored)
        if self._native is not None and max(longest, len(asked.ids)) <= LONGEST:
            every = (asked, *stored)
            return self._native.compare([its.ids for its in every], [its.states for its in every], cosines)
        rows, own = len(stored), len(asked.ids)
        a = np.broadcast_to(asked.states.astype(np.float32) / _INT8, (rows, own, self.width))
        b = np.zeros((rows, longest, self.width), np.float32)
        ids = np.full((rows, longest), -1, np.int64)
        for row, other in enumerate(stored):
            b[row, : len(other.ids)] = other.states
            ids[row, : len(other.ids)] = other.ids
        b /= _INT8
        mine = np.broadcast_to(asked.ids.astype(np.int64), (rows, own))
        cosine = a @ b.transpose(0, 2, 1)
        equal = mine[:, :, None] == ids[:, None, :]
        one = self._side(a, b, cosine, equal, mine, ids)
        other_side = self._side(b, a, cosine.transpose(0, 2, 1), equal.transpose(0, 2, 1), ids, mine)
        lengths = (ids >= 0).sum(axis=1)
        shape = np.stack([np.asarray(cosines, np.float32), np.abs(own - lengths) / (own + lengths)], axis=1)
        both = np.concatenate([one + other_side, shape], axis=1, dtype=np.float32)
        hidden = _gelu(both @ self._w["o1.weight"].T + self._w["o1.bias"])
        odds: Floats = (hidden @ self._w["o2.weight"].T + self._w["o2.bias"])[:, 0]
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
        absent = (partners < 0)[:, None, :]
        pull = np.where(absent, -1e4, math.exp(float(self._w["sharpness"][0])) * cosine + self._w["same"][0] * equal)
        pull = np.exp(pull - pull.max(axis=2, keepdims=True))
        pull /= pull.sum(axis=2, keepdims=True)
        found: Floats = pull.astype(np.float32) @ b
        closest = np.where(absent, -1.0, cosine).max(axis=2).astype(np.float32)
        rare = rarity(ids)
        about = [closest, equal.any(axis=2).astype(np.float32), rare, closest * rare]
        seen = np.concatenate([a, found, np.abs(a - found), a * found, np.stack(about, axis=2)], axis=2)
        wide = _gelu(seen @ self._w["f1.weight"].T + self._w["f1.bias"])
        hidden = _gelu(wide @ self._w["f2.weight"].T + self._w["f2.bias"])
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
