"""Where a checkpoint has the experts of a layer: one by one, or all in two tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from headgate.engine.models.spec import DecoderSpec
from headgate.engine.models.weights.quantized import Matrix, read_matrix
from headgate.engine.models.weights.tensors import Tensors

_SHARED = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class ExpertTensors:
    """The matrices gate, up and down of an expert, still mapped, and the names of the tensors that have them."""

    names: Sequence[str]
    matrices: Sequence[Matrix]


def expert_tensors(source: Tensors, at: str, spec: DecoderSpec) -> list[ExpertTensors]:
    """Those that the router of the layer `at` chooses from.

    Raises:
        CheckpointError: one is missing or misshapen.
    """
    names, experts, hidden = spec.names, spec.experts, spec.hidden
    assert experts is not None
    stacked = [f"{at}.{names.experts}.{name}" for name in ("gate_up_proj", "down_proj")]
    if names.stacked_experts:
        stacked = [f"{at}.{names.experts}.{name}.weight" for name in (names.expert_gate, names.expert_down)]
    if stacked[0] not in source:
        parts = (names.expert_gate, names.expert_up, names.expert_down)
        return [
            _expert(source, f"{at}.{names.experts}.{e}", parts, hidden, experts.width) for e in range(experts.count)
        ]
    shapes = (experts.count, 2 * experts.width, hidden), (experts.count, hidden, experts.width)
    # One of them may be square, the other is not then.
    turned = names.turned_experts and any(map(partial(_turned, source), stacked, shapes))
    gate_up, down = (_stack(source, *each, turned=turned) for each in zip(stacked, shapes, strict=True))
    return [ExpertTensors(stacked, [*gate_up[e].chunk(2), down[e]]) for e in range(experts.count)]


def shared_expert_tensors(source: Tensors, at: str, spec: DecoderSpec) -> ExpertTensors | None:
    """The one that every token passes; None where the architecture has none. CheckpointError as above."""
    width = spec.experts.shared_width if spec.experts is not None else None
    return _expert(source, f"{at}.mlp.shared_expert", _SHARED, spec.hidden, width) if width else None


def _turned(source: Tensors, name: str, shape: tuple[int, int, int]) -> bool:
    count, outputs, inputs = shape
    return outputs != inputs and name in source and source.shape(name) == (count, inputs, outputs)


def _stack(source: Tensors, name: str, shape: tuple[int, int, int], *, turned: bool) -> Tensor:
    count, outputs, inputs = shape
    return source.get(name, (count, inputs, outputs)).transpose(1, 2) if turned else source.get(name, shape)


def _expert(source: Tensors, at: str, parts: Sequence[str], hidden: int, width: int) -> ExpertTensors:
    names = [f"{at}.{part}.weight" for part in parts]
    shapes = ((width, hidden), (width, hidden), (hidden, width))
    return ExpertTensors(names, [read_matrix(source, *each) for each in zip(names, shapes, strict=True)])
