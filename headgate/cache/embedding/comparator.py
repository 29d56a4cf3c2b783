"""The second signal: which words of two texts find a partner in the other, from what the encoder saw of each word.

The cosine of two sentence vectors says what both are about. It hardly moves when one word is exchanged, which is where
answers go wrong. Here every wordpiece of either text looks for its partner in the other; what the two have in common
and what sets them apart goes through small networks that were fitted on pairs.

Networks fitted alike err differently, because each keeps something else of a wordpiece: the mean of three tells more
than any of them, or than one that is wider. They share what an entry keeps by keeping four bits of a number each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from headgate.cache.embedding.comparator_native import LONGEST
from headgate.cache.embedding.comparator_network import INT8, NAMES, Floats, Network, Unit

MAX_TOKENS = LONGEST
"""Wordpieces of a text that are looked at; a longer text has no sketch and is not compared."""
_MARK = 4
"""Bytes in front of a packed sketch that say which comparator made it."""
_LEVELS = 7
_NIBBLE = 8


@dataclass(frozen=True, slots=True)
class Sketch:
    """The wordpieces of a text as the comparator needs them: `2 + width / 2` bytes each.

    Attributes:
        ids: `[tokens]`, uint16.
        states: `[tokens, width]`, int8 from -7 to 7: what each network keeps, side by side, relative to its largest.
    """

    ids: NDArray[np.uint16]
    states: NDArray[np.int8]

    def to_bytes(self) -> bytes:
        """The ids, then the states, two a byte."""
        halves = (self.states + _NIBBLE).astype(np.uint8)
        return self.ids.tobytes() + (halves[:, ::2] | halves[:, 1::2] << 4).tobytes()

    @classmethod
    def from_bytes(cls, packed: bytes, width: int) -> Sketch | None:
        """What `to_bytes` wrote; None where it is empty or of another width."""
        tokens, rest = divmod(len(packed), 2 + width // 2)
        if rest or not tokens:
            return None
        both = np.frombuffer(packed, np.uint8, offset=2 * tokens).reshape(tokens, width // 2)
        states = np.empty((tokens, width), np.int8)
        states[:, ::2], states[:, 1::2] = both & 15, both >> 4
        states -= _NIBBLE
        return cls(np.frombuffer(packed, np.uint16, tokens), states)


class Comparator:
    """Fitted networks of one size. Safe to use from several threads."""

    def __init__(self, networks: Sequence[Mapping[str, Floats]], *, native: bool = True) -> None:
        """A comparator of networks with these weights; see `Network`."""
        self._networks = [Network(weights, native=native) for weights in networks]
        self._each = self._networks[0].width
        self.width = self._each * len(networks)
        """Numbers that a sketch keeps of a wordpiece."""
        self.states = self._networks[0].states
        """Length of an encoder state, all its layers together."""
        kept = b"".join(network.weights[name].tobytes() for network in self._networks for name in NAMES)
        self.digest = hashlib.blake2b(kept, digest_size=16).digest()
        """Of the weights that a sketch depends on, among others."""

    @classmethod
    def load(cls, path: Path) -> Comparator:
        """From a safetensors file."""
        networks: dict[str, dict[str, Floats]] = {}
        for name, value in sorted(load_file(path).items()):
            network, _, weight = name.partition(".")
            networks.setdefault(network, {})[weight] = value.astype(np.float32)
        return cls(list(networks.values()))

    def save(self, path: Path) -> None:
        """To a safetensors file, in half precision."""
        every = [
            (f"{at}.{name}", value) for at, its in enumerate(self._networks) for name, value in its.weights.items()
        ]
        save_file({name: value.astype(np.float16) for name, value in every}, path)

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
        if not fit:
            return [None] * len(texts)
        every = [states for _, states in fit]
        rows = np.concatenate([_levels(network.project(every)) for network in self._networks], axis=1)
        made = iter(np.split(rows, np.cumsum([len(states) for states in every])[:-1]))
        return [Sketch(ids.astype(np.uint16), next(made)) if 0 < len(ids) <= MAX_TOKENS else None for ids, _ in texts]

    def pack(self, sketch: Sketch) -> bytes:
        """A sketch of this comparator's as entries keep it: who made it, the ids, the states."""
        return self.digest[:_MARK] + sketch.to_bytes()

    def unpack(self, packed: bytes) -> Sketch | None:
        """What `pack` gave; None where it is empty or another comparator's, by whose weights alone it compares."""
        if packed[:_MARK] != self.digest[:_MARK]:
            return None
        return Sketch.from_bytes(packed[_MARK:], self.width)

    def packed_tokens(self, packed: bytes) -> int:
        """Wordpieces in what `pack` gave."""
        return (len(packed) - _MARK) // (2 + self.width // 2)

    def compare(self, asked: Sketch, stored: Sequence[Sketch], cosines: Sequence[float]) -> Floats:
        """Log odds `[stored]` that one answer serves both texts, as the pairs it was fitted on have it: the mean of
        what the networks say.

        Args:
            asked: the one text.
            stored: the others.
            cosines: of the sentence vectors, one for each of the others.

        Raises:
            ValueError: a sketch is of another width, or there are not as many cosines as stored texts.
        """
        every = (asked, *stored)
        if any(its.states.shape[1] != self.width for its in every) or len(cosines) != len(stored):
            widths = sorted({its.states.shape[1] for its in every})
            raise ValueError(
                f"sketches are {widths} wide and cosines {len(cosines)} for {len(stored)} stored texts; {self.width} "
                f"and as many are accepted"
            )
        ids = [its.ids for its in every]
        ends = np.cumsum([len(its) for its in ids])[:-1]
        units = _unit(np.concatenate([its.states for its in every]).reshape(-1, len(self._networks), self._each))
        odds = np.zeros(len(stored), np.float32)
        for at, network in enumerate(self._networks):
            odds += network.compare(ids, np.split(units[at], ends), cosines)
        return odds / np.float32(len(self._networks))


def _levels(unit: Unit) -> NDArray[np.int8]:
    """Of each row its numbers relative to the largest, in fifteen steps; the length comes back by `_unit`."""
    rows = unit.astype(np.float32)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    levels: NDArray[np.int8] = np.rint(rows * (_LEVELS / np.maximum(largest, 1.0))).astype(np.int8)
    return levels


def _unit(levels: NDArray[np.int8]) -> Unit:
    """`[rows, networks, width]` of levels to `[networks, rows, width]` of unit norm, times 127."""
    rows = levels.astype(np.float32)
    norms = np.sqrt(np.einsum("rnw,rnw->rn", rows, rows))
    scaled = np.rint(rows * (INT8 / np.maximum(norms, 1.0))[:, :, None]).astype(np.int8)
    return np.ascontiguousarray(scaled.transpose(1, 0, 2))
