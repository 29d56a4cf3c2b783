"""The comparator as one call into C++ (`native/comparator.inc`), for what numpy takes most of a millisecond for."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.cache.embedding.encoder_native import instructions, library

Floats = NDArray[np.float32]

LONGEST = 40
"""Wordpieces of a text that the kernel has room for."""
_HIDDEN = 48
_UNIT, _WIDEST = 16, 64
_WORDS = 1 << 16


class _Comparator(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("instructions", "states", "width")),
        *((name, ctypes.c_float) for name in ("pull", "same")),
        *((name, ctypes.c_void_p) for name in ("project", "f1", "f1_bias", "f2", "f2_bias", "o1", "o1_bias", "o2")),
        ("rarity", ctypes.c_void_p),
    )


class NativeComparator:
    """The sums of `Network` by its weights. Safe to use from several threads."""

    def __init__(self, weights: Mapping[str, Floats], rarity: Floats, level: int | None = None) -> None:
        """A comparator with these weights.

        Args:
            weights: of sizes that `fits`.
            rarity: of each of 65,536 wordpieces.
            level: of instructions, at most what `instructions` gives; None takes that.

        Raises:
            ValueError: the processor or the kernel is not made for it.
        """
        found, best = library(), instructions()
        own = best if level is None else level
        if found is None or not 0 < own <= best or not self.fits(weights) or len(rarity) != _WORDS:
            raise ValueError("the comparator's weights do not fit the kernel, or there is none for this processor")
        address, size = ctypes.c_void_p, ctypes.c_int64
        self._run, self._sketch = found.headgate_comparator_run, found.headgate_comparator_sketches
        self._run.argtypes, self._run.restype = [address, address, address, address, size, address, address], None
        self._sketch.argtypes, self._sketch.restype = [address, address, size, address], None
        self._width, self._states = weights["project"].shape
        # Referred to by address from here on.
        self._kept: list[NDArray[Any]] = []
        made = _Comparator(
            own,
            self._states,
            self._width,
            float(np.exp(weights["sharpness"][0])),
            float(weights["same"][0]),
            self._keep(weights["project"].T),
            *(
                self._keep(part)
                for name in ("f1", "f2", "o1")
                for part in (weights[f"{name}.weight"].T, weights[f"{name}.bias"])
            ),
            self._keep(np.concatenate([weights["o2.weight"][0], weights["o2.bias"]])),
            self._keep(rarity),
        )
        self._made = made
        self._at = ctypes.addressof(made)

    @staticmethod
    def fits(weights: Mapping[str, Floats]) -> bool:
        """Whether the kernel is there, and computes these sizes."""
        width = weights["project"].shape[0]
        shapes = {"f1": (_HIDDEN, 4 * width + 4), "f2": (_HIDDEN, _HIDDEN), "o1": (_HIDDEN, 2 * _HIDDEN + 2)}
        shapes["o2"] = (1, _HIDDEN)
        return (
            instructions() > 0
            and width % _UNIT == 0
            and width <= _WIDEST
            and all(weights[f"{name}.weight"].shape == shape for name, shape in shapes.items())
        )

    def sketches(self, texts: Sequence[Floats]) -> NDArray[np.int8]:
        """Encoder states of each text, `[tokens, states]`, to rows `[width]` of unit norm, times 127, of all texts.

        One call for all: after each, the interpreter has to be waited for.
        """
        rows = [self._rows(states) for states in texts]
        made = np.empty((sum(len(states) for states in rows), self._width), np.int8)
        given = np.array(
            [(states.ctypes.data, states.strides[0] // states.itemsize, len(states)) for states in rows], np.int64
        )
        self._sketch(self._at, given.ctypes.data, len(rows), made.ctypes.data)
        return made

    def _rows(self, states: Floats) -> Floats:
        """As the kernel reads them."""
        if states.dtype != np.float32 or states.strides[1] != states.itemsize or states.strides[0] % states.itemsize:
            states = np.ascontiguousarray(states, np.float32)
        if states.shape[1] != self._states:
            raise ValueError(f"states are of length {states.shape[1]}; {self._states} is accepted")
        return states

    def compare(
        self, ids: Sequence[NDArray[np.uint16]], sketches: Sequence[NDArray[np.int8]], cosines: Sequence[float]
    ) -> Floats:
        """Log odds `[stored]`; of the wordpieces and sketches the first are the asked text's, and all are of 1 to
        `LONGEST` wordpieces."""
        starts = np.zeros(len(ids) + 1, np.int64)
        np.cumsum([len(its) for its in ids], out=starts[1:])
        all_ids, all_sketches = np.concatenate(ids, dtype=np.uint16), np.concatenate(sketches, dtype=np.int8)
        if all_sketches.shape != (len(all_ids), self._width) or len(cosines) != len(ids) - 1:
            raise ValueError(
                f"sketches are {all_sketches.shape} and cosines {len(cosines)} for {len(all_ids)} wordpieces of"
                f" {len(ids)} texts; {(len(all_ids), self._width)} and {len(ids) - 1} are accepted"
            )
        near = np.asarray(cosines, np.float32)
        odds = np.empty(len(ids) - 1, np.float32)
        self._run(
            self._at,
            all_ids.ctypes.data,
            all_sketches.ctypes.data,
            starts.ctypes.data,
            len(odds),
            near.ctypes.data,
            odds.ctypes.data,
        )
        return odds

    def _keep(self, array: NDArray[Any]) -> int:
        """Where it lies, for as long as this lives."""
        self._kept.append(np.ascontiguousarray(array, np.float32))
        return self._kept[-1].ctypes.data
