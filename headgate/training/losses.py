"""What training minimises: cross-entropy on answer tokens, the balance of experts, and the teacher's distribution.

Distillation: Hinton, Vinyals, Dean 2015, "Distilling the Knowledge in a Neural Network".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from headgate.training.batches import Batch
from headgate.training.hidden import attached

Loss = Callable[[Any, Batch, float], torch.Tensor]
"""A scalar of a `transformers` causal language model, a batch, and the share of the run that is done (0 to 1)."""


def answer_logits(model: Any, batch: Batch) -> torch.Tensor:
    """fp32 logits [answers, vocabulary] where an answer token comes next; the head is computed only there."""
    return _answers(model, batch, _outputs(model, batch))


def answer_loss(model: Any, batch: Batch, _done: float) -> torch.Tensor:
    """Cross-entropy on answer tokens."""
    return F.cross_entropy(answer_logits(model, batch), batch.targets)


def balanced_loss(model: Any, batch: Batch, _done: float) -> torch.Tensor:
    """Cross-entropy on answer tokens plus 0.005 times the load-balancing loss of the experts.

    Load balancing: Fedus et al. 2021, "Switch Transformers".
    """
    output = _outputs(model, batch, router=True)
    cross_entropy = F.cross_entropy(_answers(model, batch, output), batch.targets)
    return cross_entropy + 0.005 * _spread(model, batch, output)


def distillation(
    student: torch.Tensor,
    teacher: torch.Tensor,
    targets: torch.Tensor,
    *,
    temperature: float,
    soft: float,
    exact: bool = False,
) -> torch.Tensor:
    """`soft` * T^2 * KL(teacher_T || student_T) + (1 - `soft`) * cross-entropy(student, targets), averaged over rows.

    `student` and `teacher` are fp32 logits [answers, vocabulary], `targets` int64 [answers]; the index T divides the
    logits by the temperature. T^2 keeps the gradient of the soft part at the scale of the hard part (Hinton et al.
    2015, section 2). With `exact` targets, which are right whatever the teacher says, a row whose likeliest token by
    the teacher is another has the cross-entropy alone.
    """
    divergence = F.kl_div(
        F.log_softmax(student / temperature, dim=-1),
        F.log_softmax(teacher / temperature, dim=-1),
        reduction="none",
        log_target=True,
    ).sum(dim=-1)
    share = soft * (teacher.argmax(dim=-1) == targets) if exact else soft
    errors = F.cross_entropy(student, targets, reduction="none")
    return (share * temperature**2 * divergence + (1 - share) * errors).mean()


def distillation_loss(
    teacher: Any,
    *,
    temperature: float = 1.0,
    soft: float = 0.5,
    exact: bool = False,
    hidden: float = 4.0,
    balance: float | None = None,
) -> Loss:
    """`distillation` against a frozen teacher, whose logits are computed on the fly.

    A student with `HiddenMatch` maps attached also gets their loss, at first `hidden` times, then less in proportion to
    the run that is left: states guide the start, and in the end only answers count. One that is a mixture of experts
    also gets `balance` times its load-balancing loss (None for a dense one).
    """
    teacher.eval().requires_grad_(False)

    def loss(model: Any, batch: Batch, done: float) -> torch.Tensor:
        match = attached(model)
        with torch.no_grad():
            theirs = _outputs(teacher, batch, states=match is not None)
            wanted = _answers(teacher, batch, theirs)
        output = _outputs(model, batch, states=match is not None, router=balance is not None)
        given = _answers(model, batch, output)
        total = distillation(given, wanted, batch.targets, temperature=temperature, soft=soft, exact=exact)
        if match is not None:
            total = total + hidden * (1 - done) * match(output.hidden_states, theirs.hidden_states, batch.mask)
        if balance is not None:
            total = total + balance * _spread(model, batch, output)
        return total

    return loss


def _outputs(model: Any, batch: Batch, *, states: bool = False, router: bool = False) -> Any:
    options = {"output_hidden_states": True} if states else {}
    if router:
        options["output_router_logits"] = True
    return model.model(input_ids=batch.ids, use_cache=False, **options)


def _answers(model: Any, batch: Batch, output: Any) -> torch.Tensor:
    logits: torch.Tensor = model.lm_head(output.last_hidden_state.flatten(0, 1)[batch.positions])
    return logits.float()


def _spread(model: Any, batch: Batch, output: Any) -> torch.Tensor:
    """The load-balancing loss, 1 if all experts are used alike: Fedus et al. 2021, equations 4 to 6."""
    from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

    spread: torch.Tensor = load_balancing_loss_func(
        output.router_logits, model.config.num_experts, model.config.num_experts_per_tok, batch.mask
    )
    return spread
