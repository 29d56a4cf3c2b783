"""Layers with the fp8 weights of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from headgate.engine.kernels.mixture import Fp8Expert, Mixture, MixtureWeights
from headgate.engine.kernels.triton.few import FEW
from headgate.engine.kernels.triton.linear import StoredLinear, rounds
from headgate.engine.kernels.triton.mixture import TritonMixture
from headgate.engine.kernels.triton.stock import StockProduct, stock_works
from headgate.engine.kernels.triton.stored import Fp8Format, Stored
from headgate.engine.quant.fp8 import Fp8Weight
from headgate.engine.quant.linear import Linear


class TritonFp8:
    """Implements Fp8Layers: few tokens by kernels of ours, many by torch's product where it has one."""

    unrounded = FEW

    def __init__(self) -> None:
        self._stock: dict[Fp8Format, bool] = {}

    def rounds(self, weight: Fp8Weight, tokens: int) -> bool:
        """See Fp8Layers."""
        return rounds(weight.values.nbytes, tokens)

    def linear(self, weight: Fp8Weight, bias: Tensor | None) -> Linear:
        """See Fp8Layers."""
        stored = Stored.of_fp8(weight)
        fmt: Fp8Format = "fp8 blocks" if weight.blocks else "fp8 rows"
        if fmt not in self._stock:
            self._stock[fmt] = stock_works(fmt, weight.values.device)
        return StoredLinear(stored, bias, StockProduct(weight) if self._stock[fmt] else None)

    def mixture(self, weights: MixtureWeights, experts: Iterable[Fp8Expert], shared: Fp8Expert | None) -> Mixture:
        """See Fp8Layers."""
        layers = None if shared is None else (self.linear(shared.gate_up, None), self.linear(shared.down, None))
        stored = ((Stored.of_fp8(each.gate_up), Stored.of_fp8(each.down)) for each in experts)
        return TritonMixture(weights, stored, layers)
