"""Linear layers whose rows have low-rank adapters of their own: the bare layer's launch between two more."""

from __future__ import annotations

from torch import Tensor

from headgate.engine.kernels.triton.few import Unnormed
from headgate.engine.kernels.triton.linear import StoredLinear
from headgate.engine.kernels.triton.low_rank import alone, expand, shrink, whole
from headgate.engine.kernels.triton.rows import Rounded, exact
from headgate.engine.models.adapters.linear import Owners, Stack


class TunedLinear(StoredLinear):
    """A layer, and what is added to it. It takes and gives what the layer does, but for some more norms of its own."""

    def __init__(self, base: StoredLinear, stack: Stack, owners: Owners) -> None:
        """`owners`: of the rows it is called with."""
        super().__init__(base._weight, base._bias, base._stock)
        self._stack, self._owners = stack, owners

    def norms(self, tokens: int) -> bool:
        """See StoredLinear."""
        return super().norms(tokens) and alone(tokens, self._stack) and whole(self._stack)

    def gated(self, x: Tensor | Unnormed) -> Tensor | None:
        """See StoredLinear."""
        tokens = x.x.shape[0] if isinstance(x, Unnormed) else x.shape[0]
        return self._apply(x, gate=True) if alone(tokens, self._stack) else None

    def __call__(self, x: Tensor | Rounded | Unnormed) -> Tensor:
        """See StoredLinear."""
        return self._apply(x, gate=False)

    def _apply(self, x: Tensor | Rounded | Unnormed, *, gate: bool) -> Tensor:
        if isinstance(x, Tensor):
            x = x.contiguous()
        numbers = self._owners.told
        # Before the layer, which may ask for its weights meanwhile.
        low = shrink(x if isinstance(x, Unnormed) else exact(x), self._stack, numbers)
        return expand(super().__call__(x), low, self._stack, numbers, gate=gate)
