"""Linear layers by weight format. A format is a class with one call; the decoder does not know which it has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from headgate.engine.quant.int4 import thin

WeightFormat = Literal["native", "int8", "int4"]
_LEAST_OVERFLOW = 127
"""By which two products of unsigned and signed bytes leave 16 bits at least, where they do: 255 * 129 - 32768."""


class Linear(Protocol):
    """y = x W^T + b. x [tokens, in_features]; y [tokens, out_features], in x's dtype."""

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes read per step: weights, scales and bias."""
        ...


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A quantised weight as an operator reads it, for layers that are made of nothing else but a bias.

    Attributes:
        packed: integers in the operator's layout, one panel of outputs after the other.
        scales: float32, one per output, the last panel filled up.
        shift: int32, one per output: 128 times the sum of its int8 values.
    """

    packed: Tensor
    scales: Tensor
    shift: Tensor


class DenseLinear:
    """Weights in the dtype of the activations."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """`weight` [out_features, in_features], `bias` [out_features], both in the compute dtype."""
        self._weight = weight
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return F.linear(x, self._weight, self._bias)

    @property
    def nbytes(self) -> int:
        """Bytes of weight and bias."""
        return self._weight.nbytes + (self._bias.nbytes if self._bias is not None else 0)


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Symmetric int8 per row: x ~ q * scale. x [rows, width]; q int8 [rows, width], scale fp32 [rows, 1].

    scale = max|x| / 127 of the row; a row of zeros gets scale 1, one with a NaN a NaN.
    """
    values = x.float()
    scale = values.abs().amax(dim=-1, keepdim=True) / 127
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return (values / scale).round_().clamp_(-127, 127).to(torch.int8), scale


class Int8Linear:
    """int8 weights, one scale per output feature, times activations quantised to int8 per token as they come.

    y[t, o] = x_scale[t] * w_scale[o] * sum_i xq[t, i] * wq[o, i] + b[o], with the sum exact in int32.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """`weight` [out_features, in_features] in floating point; it is quantised here."""
        quantized, scale = quantize_rows(weight)
        self._keep(quantized, scale.flatten(), bias)

    @classmethod
    def thinned(cls, weight: Tensor, bias: Tensor | None = None, importance: Tensor | None = None) -> Int8Linear:
        """The layer whose values are those of 4-bit codes, see `quant.int4`: their results in int8's memory."""
        layer = cls.__new__(cls)
        codes = thin(weight, importance)
        layer._keep(codes.expand()[:, : weight.shape[1]].contiguous(), codes.scales, bias)
        return layer

    def _keep(self, quantized: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        self._bias = bias
        self._nbytes = quantized.nbytes + scale.nbytes + (bias.nbytes if bias is not None else 0)
        self._product = _onednn_product(quantized, scale) or _stock_product(quantized, scale)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        quantized, scale = quantize_rows(x)
        y = self._product(quantized) * scale
        if self._bias is not None:
            y = y + self._bias
        return y.to(x.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of weights, scales and bias."""
        return self._nbytes


def linear(weight: Tensor, bias: Tensor | None, fmt: WeightFormat, importance: Tensor | None = None) -> Linear:
    """The layer that computes with `weight` in format `fmt`, in stock operators: those of int4 take int8's memory."""
    if fmt == "int4":
        return Int8Linear.thinned(weight, bias, importance)
    return Int8Linear(weight, bias) if fmt == "int8" else DenseLinear(weight, bias)


def _onednn_product(weight: Tensor, scale: Tensor) -> Callable[[Tensor], Tensor] | None:
    """int8 [tokens, in] -> fp32 [tokens, out], rows of `weight` scaled, through oneDNN; None where it is no help.

    oneDNN has fast kernels for unsigned activations only (signed ones take a plain loop): they are shifted by
    128, and the operator takes the shift out again in its int32 sums. Without VNNI instructions such kernels saturate
    pairs of products in 16 bits, so the operator must show that it is exact with these weights before it is used.
    """
    ops = torch.ops.onednn
    if weight.device.type != "cpu" or not hasattr(ops, "qlinear_pointwise"):
        return None
    packed = ops.qlinear_prepack(weight, None)
    zero_points = torch.zeros(weight.shape[0], dtype=torch.int32)

    def product(x: Tensor) -> Tensor:
        # Flipping the top bit of a two's complement byte adds 128 and makes it unsigned. One activation scale per call
        # is all the operator takes: it gets 1, and the caller scales the rows.
        y: Tensor = ops.qlinear_pointwise(
            x.view(torch.uint8) ^ 128, 1.0, 128, packed, scale, zero_points, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return y

    # Two neighbours' products are largest together where both activations are: what fits 16 bits there fits always. A
    # pair that does not is off by 127 at least; rounding the sum to float32 is off by less than half of that.
    most = torch.full((1, weight.shape[1]), 127, dtype=torch.int8)
    off = product(most)[0].double() / scale.double() - weight.double().sum(dim=-1) * 127
    return product if bool((off.abs() < _LEAST_OVERFLOW / 2).all()) else None


def _stock_product(weight: Tensor, scale: Tensor) -> Callable[[Tensor], Tensor]:
    """The same through torch._int_mm, which on CUDA wants more than 16 rows."""
    transposed = weight.t()
    least_rows = 17 if weight.device.type == "cuda" else 1

    def product(x: Tensor) -> Tensor:
        rows = x.shape[0]
        padded = F.pad(x, (0, 0, 0, max(0, least_rows - rows)))
        return torch._int_mm(padded, transposed)[:rows].float() * scale

    return product
