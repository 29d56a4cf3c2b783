"""Muon for the matrices inside the layers, AdamW for everything else.

Muon: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the scale of its step by Liu et al.
2025, "Muon is scalable for LLM training", section 2.2. `torch.optim.Muon` takes only two dimensions, and the experts of
a mixture are one weight of three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from headgate.training.forward import fastest
from headgate.training.parallel import exchange, shares

MOMENTUM = 0.95
DECAY = 0.05
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration; chosen by Jordan et al. to raise small singular values fast, not to converge to 1."""
_STEPS = 4


def orthogonalized(matrices: torch.Tensor) -> torch.Tensor:
    """About U V^T of each matrix U S V^T in [..., rows, columns], by Newton-Schulz iteration; bf16 out.

    Singular values end up below 1.25; those of a thousandth of the matrix' norm reach about 0.1, larger ones more.
    Muon needs no better.
    """
    a, b, c = _COEFFICIENTS
    tall = matrices.size(-2) > matrices.size(-1)
    x = (matrices.mT if tall else matrices).to(fastest(matrices.device)).reshape(-1, *sorted(matrices.shape[-2:]))
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        gram = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).reshape(matrices.shape).bfloat16()


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised, for weights [rows, columns] or [experts, rows, columns].

    The update is scaled by 0.2 * sqrt(max(rows, columns)), so that its entries are of the size of AdamW's and both use
    one learning rate.
    """

    def __init__(self, weights: Iterable[torch.nn.Parameter], rate: float) -> None:
        super().__init__(list(weights), {"lr": rate})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Updates every weight that has a gradient. `closure` is not supported.

        Processes that train together, whose gradients are equal, share the work: each orthogonalises its part.
        """
        if closure is not None:
            raise ValueError("Muon takes no closure: it never evaluates the loss again")
        for group in self.param_groups:
            rate = group["lr"]
            weights = [weight for weight in group["params"] if weight.grad is not None]
            # Neighbours of one size go to different processes.
            weights.sort(key=lambda weight: weight.numel())
            for weight, update in zip(weights, self._updates(weights), strict=True):
                weight.mul_(1 - rate * DECAY)
                weight.add_(update, alpha=-rate * 0.2 * max(weight.shape[-2:]) ** 0.5)

    def _updates(self, weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        own = shares(weights)
        updates: list[torch.Tensor] = []
        for weight, mine in zip(weights, own, strict=True):
            state, gradient = self.state[weight], weight.grad
            assert gradient is not None
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(weight)
            momentum = state["momentum"].lerp_(gradient, 1 - MOMENTUM)
            if mine:
                updates.append(orthogonalized(torch.lerp(gradient, momentum, MOMENTUM)))
            else:
                updates.append(torch.empty(weight.shape, dtype=torch.bfloat16, device=weight.device))
        exchange(updates)
        return updates


def optimizers(model: Any, rate: float) -> tuple[torch.optim.Optimizer, ...]:
    """Muon over the layers' matrices, AdamW over embeddings, norms and the experts' routers."""
    inner = {
        name
        for name, weight in model.named_parameters()
        if weight.dim() > 1 and ".layers." in name and not name.endswith("mlp.gate.weight")
    }
    matrices = [weight for name, weight in model.named_parameters() if name in inner]
    others = [weight for name, weight in model.named_parameters() if name not in inner]
    adam = torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    return (Muon(matrices, rate), adam) if matrices else (adam,)
