"""Pictures in a conversation: as they were decoded, and as a prompt has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import shake_256

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A picture that a conversation has, decoded.

    Attributes:
        pixels: uint8 [height, width, 3], RGB.
        digest: 32 bytes that stand for what was decoded: SHA-256 of the file's bytes.
    """

    pixels: NDArray[np.uint8]
    digest: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """One picture as the model's part that sees takes it, and where in the prompt its tokens are.

    Attributes:
        start: position of its first token in the prompt.
        tokens: how many positions it spans, those between its placeholders included.
        digest: the picture's.
        features: what the part that sees takes, by the names that it has for it.
        places: int64, ascending: the placeholders, counted from `start`, in whose places are what that part gives.
        grid: rows and columns of the placeholders, which follow each other, where the model's heads turn by these.
        whole: the placeholders, which follow each other, attend to each other, so that one step computes them all.
    """

    start: int
    tokens: int
    digest: bytes
    features: Mapping[str, Tensor]
    places: NDArray[np.int64]
    grid: tuple[int, int] | None = None
    whole: bool = False

    @property
    def seen(self) -> tuple[int, int]:
        """Positions of its first placeholder and behind its last one."""
        return self.start + int(self.places[0]), self.start + int(self.places[-1]) + 1

    @property
    def stop(self) -> int:
        """Position behind its last token."""
        return self.start + self.tokens


def told_apart(tokens: Sequence[int], sights: Sequence[Sight]) -> list[int]:
    """Tokens by which the prefix cache knows a prompt: those of pictures follow from what is seen, and are negative.

    The tokens of any two pictures are the same otherwise, and their keys and values are not.
    """
    known = list(tokens)
    for sight in sights:
        drawn = np.frombuffer(shake_256(sight.digest).digest(4 * sight.tokens), dtype="<i4")
        known[sight.start : sight.stop] = (drawn | np.int32(-(2**31))).tolist()
    return known


def turning(sights: Sequence[Sight], start: int, stop: int) -> NDArray[np.int64]:
    """[3, stop - start]: the positions by which a prompt's tokens from `start` to `stop` turn, behind its pictures.

    A picture's tokens share their first position, and count its rows and columns from there; what follows goes on
    behind the longer of the two. Source: Qwen2-VL, 2024.
    """
    at = np.tile(np.arange(start, stop), (3, 1))
    saved = 0
    for sight in sights:
        if sight.grid is None:
            continue
        rows, columns = sight.grid
        first, count = sight.start + int(sight.places[0]), rows * columns
        if first >= stop:
            break
        low, high = max(first, start), max(min(first + count, stop), start)
        if low < high:
            number, here = np.arange(low - first, high - first), slice(low - start, high - start)
            at[:, here] = first - saved + np.stack([0 * number, number // columns, number % columns])
        saved += count - max(rows, columns)
        at[:, high - start :] = np.arange(high, stop) - saved
    return at


def parted(sights: Sequence[Sight], start: int, stop: int) -> int:
    """Where a step of the tokens from `start` on may end: the last such place up to `stop`, or else the first."""
    for sight in sights:
        if sight.whole:
            first, behind = sight.seen
            if first < stop < behind:
                return first if start < first else behind
    return stop


def check_sights(prompt: Sequence[int], sights: Sequence[Sight]) -> None:
    """Raise ValueError unless they lie in the prompt, one behind the other."""
    before = 0
    for number, sight in enumerate(sights):
        if sight.start < before or sight.tokens < 1 or sight.stop > len(prompt):
            raise ValueError(
                f"sights[{number}] has tokens from {sight.start} to {sight.stop}; a place between {before} and "
                f"{len(prompt)} is accepted"
            )
        before = sight.stop
