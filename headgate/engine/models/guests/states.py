"""Layers of transformers that keep a state of each sequence: a step's sequences pass them each with its own."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from headgate.engine.kernels.states import StateShape
from headgate.engine.models.state_passes import LayerOut, StateKey, States

_READS = frozenset({"get_conv_state", "get_recurrent_state"})


class Passes(Protocol):
    """Has a step's tokens pass the layers that keep a state, one after the other."""

    def __call__(self, layer: Remembering, hidden: Tensor) -> LayerOut:
        """What the layer makes of [1, tokens, hidden], sequence after sequence."""
        ...


class _OneCall:
    """Stands for transformers' cache while a layer is called: states of one layer, [sequences, ...] each."""

    def __init__(self, states: States | None) -> None:
        """`states`: what the tokens before left; None where there are none. It is changed."""
        self.begun = states is not None
        self.states: States = {} if states is None else states

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:  # noqa: ARG002
        return self.states["conv", state_idx] if self.begun else None

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:  # noqa: ARG002
        return self.states["recurrent", state_idx] if self.begun else None

    def has_previous_state(self, layer_idx: int | None = None, state_idx: int | None = None) -> bool:  # noqa: ARG002
        return self.begun

    def is_recording_past(self, layer_idx: int) -> bool:  # noqa: ARG002
        return False

    def update_conv_state(
        self,
        conv_states: Tensor,
        layer_idx: int,  # noqa: ARG002
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
    ) -> Tensor:
        """Keeps the last columns; returns all that a convolution over the new ones has to see."""
        before = self.states.get(("conv", state_idx)) if self.begun else None
        if before is not None:
            width, whole = before.shape[-1], torch.cat([before, conv_states], dim=-1)
        else:
            width = conv_kernel_size or conv_states.shape[-1]
            whole = nn.functional.pad(conv_states, (max(0, width - conv_states.shape[-1]), 0))
        self.states["conv", state_idx] = whole[..., -width:]
        return whole

    def update_recurrent_state(self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0) -> Tensor:  # noqa: ARG002
        """Keeps it."""
        self.states["recurrent", state_idx] = recurrent_states
        return recurrent_states


@dataclass
class Carrier:
    """What passes the layers at present."""

    passes: Passes | None = None


class Remembering(nn.Module):
    """A layer that keeps a state, in its own place."""

    def __init__(self, layer: nn.Module, carrier: Carrier) -> None:
        super().__init__()
        self.layer = layer
        self.keys: dict[StateKey, int] = {}
        """Its tensors, and their places among all of the model."""
        self.called: set[nn.Module] = set()
        """What was called of its parts while it was surveyed."""
        self._carrier = carrier

    def forward(self, hidden_states: Tensor, *_: object, **__: object) -> LayerOut:
        """[1, tokens, hidden] of a step; masks and the like are for other ways to lay sequences out."""
        if self._carrier.passes is None:
            raise ValueError("its layers are called where nobody has a state for them")
        return self._carrier.passes(self, hidden_states)

    def call(self, hidden: Tensor, states: States | None) -> tuple[LayerOut, States]:
        """What it makes of [sequences, tokens, hidden] behind the tokens that left `states`, and the states then."""
        kept = _OneCall(states)
        found: LayerOut = self.layer(hidden, kept)
        return found, kept.states


def put_in(model: nn.Module, carrier: Carrier) -> list[Remembering]:
    """Replace all layers of a model that read their states from a cache."""
    found: list[Remembering] = []
    for parent in list(model.modules()):
        for name, layer in parent.named_children():
            if _reads(layer):
                found.append(Remembering(layer, carrier))
                setattr(parent, name, found[-1])
    return found


def remembers(model: nn.Module) -> bool:
    """Whether some of its layers keep a state of a sequence."""
    return any(_reads(layer) for layer in model.modules())


def _reads(layer: nn.Module) -> bool:
    code = getattr(inspect.unwrap(type(layer).forward), "__code__", None)
    return code is not None and not _READS.isdisjoint(code.co_names)


@dataclass
class StateSurvey:
    """What a model's layers keep, in order."""

    shapes: list[StateShape] = field(default_factory=list)
    singly: bool = False
    """Whether some go on from a state with one token only."""

    def __call__(self, layer: Remembering, hidden: Tensor) -> LayerOut:
        """See Passes: of a first step."""
        hooks = [part.register_forward_hook(lambda part, *_: layer.called.add(part)) for part in layer.layer.modules()]
        found, states = layer.call(hidden, None)
        for hook in hooks:
            hook.remove()
        layer.keys = {key: len(self.shapes) + number for number, key in enumerate(sorted(states))}
        self.singly = self.singly or not _continues(layer, hidden[:, :1].expand(-1, 3, -1), states)
        self.shapes.extend(StateShape(tuple(states[key].shape[1:]), states[key].dtype) for key in sorted(states))
        return found


def _continues(layer: Remembering, hidden: Tensor, states: States) -> bool:
    """Whether several tokens from a state on are to a layer what they are one by one.

    What it makes of an ordinary state may be little: each of its tensors is a large one in turn, with the others 0.
    """
    for key, some in states.items():
        large = torch.linspace(-8, 8, some.numel(), dtype=torch.float32, device=some.device).reshape(some.shape)
        begun = {
            other: large.to(each.dtype) if other == key else torch.zeros_like(each) for other, each in states.items()
        }
        whole, parts = _flat(layer.call(hidden, dict(begun))[0]), list[Tensor]()
        left = {other: each.clone() for other, each in begun.items()}
        for at in range(hidden.shape[1]):
            part, left = layer.call(hidden[:, at : at + 1], left)
            parts.append(_flat(part))
        without = _flat(layer.call(hidden, None)[0])
        one_by_one = torch.cat(parts, dim=1)
        if not float((whole - one_by_one).norm()) <= 0.1 * float((one_by_one - without).norm()):
            return False
    return True


def _flat(found: LayerOut) -> Tensor:
    """[sequences, tokens, numbers] in float32."""
    return torch.cat([part.float().flatten(2) for part in ([found] if isinstance(found, Tensor) else found)], dim=-1)
