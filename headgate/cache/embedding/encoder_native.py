"""The encoder's pass as one call into C++ (`native/`): one text on two threads, more on the calling one.

A pass of one short text is a few hundred small operators, and each of torch's costs more than its arithmetic.
"""

from __future__ import annotations

import ctypes
import os
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.cache.embedding.encoder import MIDDLE, BertWeights, Dense, Floats

_AVX2, _AVX512, _AMX = 1, 2, 3
_INTERFACE = 5
"""Of the library; a build left over from another version is not used."""
_KINDS = {
    _AMX: "C++, AMX, bfloat16",
    _AVX512: "C++, AVX-512, bfloat16",
    _AVX2: "C++, AVX2, float32 by bfloat16 weights",
}
_PRODUCTS = ("qkv", "out", "wide", "narrow")
_UNIT = 32
_HEADS = (16, 32, 48, 64)
_AHEAD = 64 * 1024
"""Bytes behind the weights that may be asked for ahead of time."""


class _Layer(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in (
            *("qkv", "out", "wide", "narrow", "qkv_bias", "out_bias", "out_norm", "wide_bias", "narrow_bias"),
            "narrow_norm",
        )
    )


class _Encoder(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("hidden", "heads", "wide", "count", "middle")),
        ("epsilon", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("words", "positions", "norm", "layers")),
    )


def instructions() -> int:
    """3 where it runs with AMX, 2 with AVX-512 and its bfloat16, 1 with AVX2, 0 where it is not compiled or the
    processor has none of these."""
    found = library()
    return 0 if found is None else int(found.headgate_encoder_instructions())


def cores() -> int:
    """That this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


class NativePass:
    """Implements `Pass`. Weights are bfloat16 and sums float32. What they multiply is bfloat16 too, but not by AVX2,
    which has no instruction for that; everything else is float32.

    What a text gets does not depend on the texts beside it, to the bit.
    """

    def __init__(self, weights: BertWeights, level: int | None = None, *, together: bool | None = None) -> None:
        """A pass with these weights.

        Args:
            weights: of sizes that `fits`.
            level: at most what `instructions` gives; None takes that.
            together: whether a second thread takes part in the pass of a single text; None: where there are two cores.

        Raises:
            ValueError: the processor or the kernel is not made for it.
        """
        best = instructions()
        self._level = best if level is None else level
        kernel = library()
        if kernel is None or not _AVX2 <= self._level <= best or not self.fits(weights):
            raise ValueError(f"level is {self._level} for a processor of level {best} and weights that may not fit it")
        self._run = kernel.headgate_encoder_run
        self._together = cores() > 1 if together is None else together
        self._kept: list[NDArray[Any]] = []
        vocabulary, self._dim = weights.words.shape
        self._most = vocabulary - 1
        self._longest = len(weights.positions)
        # One stretch of memory, in the order in which it is read.
        sizes = [getattr(layer, name).weight.size for layer in weights.layers for name in _PRODUCTS]
        room = np.zeros(sum(sizes) + _AHEAD // 2, np.uint16)
        self._kept.append(room)
        self._layers = (_Layer * len(weights.layers))()
        for own, layer in zip(self._layers, weights.layers, strict=True):
            for name in _PRODUCTS:
                product: Dense = getattr(layer, name)
                rows = np.ascontiguousarray(product.weight, np.float32)
                kernel.headgate_encoder_pack(rows.ctypes.data, *rows.shape, room.ctypes.data)
                setattr(own, name, room.ctypes.data)
                setattr(own, f"{name}_bias", self._keep(product.bias))
                room = room[rows.size :]
            own.out_norm, own.narrow_norm = self._norm(layer.out_norm), self._norm(layer.narrow_norm)
        self._encoder = _Encoder(
            self._dim,
            weights.heads,
            len(weights.layers[0].wide.bias),
            len(weights.layers),
            MIDDLE,
            weights.epsilon,
            self._keep(weights.words.astype(np.float16)),
            self._keep(weights.positions.astype(np.float16)),
            self._norm(weights.norm),
            ctypes.addressof(self._layers),
        )

    @staticmethod
    def fits(weights: BertWeights) -> bool:
        """Whether the sizes are ones that the kernel computes."""
        dim, wide = weights.words.shape[1], len(weights.layers[0].wide.bias)
        return dim % _UNIT == 0 and wide % _UNIT == 0 and dim / weights.heads in _HEADS

    @property
    def kind(self) -> str:
        """See Pass."""
        return _KINDS[self._level]

    def __call__(self, texts: Sequence[Sequence[int]]) -> tuple[Floats, Floats]:
        """See Pass.

        Raises:
            IndexError: a text is longer than the table of positions, or a wordpiece is not in the table of words.
        """
        starts = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(ids) for ids in texts], out=starts[1:])
        ids = np.fromiter((one for text in texts for one in text), np.int32, int(starts[-1]))
        longest = int(np.diff(starts).max())
        if ids.min() < 0 or ids.max() > self._most or longest > self._longest:
            raise IndexError(
                f"a text of {longest} wordpieces up to {ids.max()}; {self._longest} up to {self._most} are accepted"
            )
        vectors = np.empty((len(texts), self._dim), np.float32)
        states = np.empty((len(ids), 2 * self._dim), np.float32)
        self._run(
            ctypes.byref(self._encoder),
            self._level,
            self._together,
            ids.ctypes.data,
            starts.ctypes.data,
            len(texts),
            vectors.ctypes.data,
            states.ctypes.data,
        )
        return vectors, states

    def _norm(self, norm: Dense) -> int:
        return self._keep(np.concatenate([norm.weight, norm.bias]))

    def _keep(self, array: NDArray[Any]) -> int:
        """Where it lies, for as long as this lives."""
        self._kept.append(np.ascontiguousarray(array))
        return self._kept[-1].ctypes.data


@cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels, loaded once; None where it was not compiled, or by another version."""
    path = Path(__file__).parents[1] / f"_encoder{sysconfig.get_config_var('EXT_SUFFIX')}"
    try:
        kernel = ctypes.CDLL(str(path))
        if kernel.headgate_encoder_interface() != _INTERFACE:
            return None
    except (OSError, AttributeError):
        return None
    size, address = ctypes.c_int64, ctypes.c_void_p
    kernel.headgate_encoder_pack.argtypes = [address, size, size, address]
    kernel.headgate_encoder_pack.restype = None
    kernel.headgate_encoder_run.argtypes = [
        address,
        ctypes.c_int32,
        ctypes.c_int32,
        address,
        address,
        size,
        address,
        address,
    ]
    kernel.headgate_encoder_run.restype = None
    return kernel
