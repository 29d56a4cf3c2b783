"""torch's own product of fp8 rows and fp8 weights, for many tokens, where it has one that is right."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headgate.engine.kernels.triton.rows import Rounded
from headgate.engine.kernels.triton.stored import Fp8Format
from headgate.engine.quant.fp8 import Fp8Weight


class StockProduct:
    """`torch._scaled_mm`, which tells kinds of scales by their shapes: a signature that torch 2.11 to 2.13 share.

    Per row it is CUTLASS's and gives bfloat16 on CUDA; by blocks it is cuBLAS's, of Hopper alone, and wants the rows in
    fours and strides of scales in 16 bytes.
    """

    def __init__(self, weight: Fp8Weight) -> None:
        self._fmt: Fp8Format = "fp8 blocks" if weight.blocks else "fp8 rows"
        self._weight, scales = weight.values.t(), weight.scales
        blocks = scales.shape[-1]
        self._scales = F.pad(scales, (0, -blocks % 4))[:, :blocks].t() if weight.blocks else scales.unsqueeze(0)

    def __call__(self, x: Tensor | Rounded, bias: Tensor | None) -> Tensor:
        """[tokens, outputs] in bfloat16."""
        if isinstance(x, Tensor):
            x = Rounded.of(x, self._fmt)
        # The bias is added here: not every kind of product takes one.
        scales = x.scales.view(-1, 1) if self._fmt == "fp8 rows" else x.scales.t()
        y = torch._scaled_mm(x.values, self._weight, scale_a=scales, scale_b=self._scales, out_dtype=torch.bfloat16)
        y = y[: x.exact.shape[0]]
        return y if bias is None else y + bias


def stock_works(fmt: Fp8Format, device: torch.device) -> bool:
    """Whether the product can be used on the device: it must give what it should, once."""
    generator = torch.Generator().manual_seed(0)
    weight, x = (torch.randn(lines, 256, generator=generator).to(device) for lines in (384, 68))
    kept = Fp8Weight.of(weight, blocks=fmt == "fp8 blocks")
    low = Rounded.of(x, fmt)
    try:
        got = StockProduct(kept)(low, None)
    except (RuntimeError, ValueError, NotImplementedError):
        return False
    runs = low.scales.t().repeat_interleave(x.shape[1] // low.scales.shape[0], dim=1)
    expected = low.values.float() * runs @ kept.expand(torch.float32).T
    return bool((got.float() - expected).norm() < 0.01 * expected.norm())
