"""transformers' own code of a model, taken apart: layers that attend as we do, and the head behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from headgate.engine.kernels.interface import Kernels
from headgate.engine.models.guests.states import Carrier, Passes, put_in
from headgate.engine.quant.linear import Linear, WeightFormat

ATTENTION = "headgate"
"""The name that our attention has among those of transformers."""


@dataclass(frozen=True, slots=True)
class Attended:
    """What a layer of transformers wants attended.

    Attributes:
        query: [1, heads, tokens, width].
        key: [1, kv_heads, tokens, width].
        value: [1, kv_heads, tokens, its own width].
        scale: of the scores.
        window: positions back, itself included, that a query sees.
        cap: see `scored_attention`.
        sinks: see Kernels.paged_attention, [heads].
        beside: whatever else the layer gave that is not None.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    window: int | None
    cap: float | None
    sinks: Tensor | None
    beside: Mapping[str, Any]


class Attends(Protocol):
    """Attends the layers of one step, one after the other."""

    def __call__(self, wanted: Attended) -> Tensor:
        """[tokens, heads, width of the values]."""
        ...


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    attends: Attends | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    dropout: float = 0.0,  # noqa: ARG001  of training
    **beside: Any,
) -> tuple[Tensor, None]:
    """An attention function of transformers: `attends` came with the call of the model."""
    if attends is None:
        raise ValueError("its layers do not hand on to attention what the model was called with")
    if attention_mask is not None:
        beside["attention_mask"] = attention_mask
    if not getattr(module, "is_causal", True):
        beside["is_causal"] = False
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    wanted = Attended(query, key, value, scale, sliding_window or None, softcap, s_aux, beside)
    return attends(wanted).unsqueeze(0), None


class _OurLinear(nn.Module):
    """A linear layer of ours in the place of one of torch's."""

    def __init__(self, layer: Linear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] to [..., outputs]."""
        y = self.layer(x.reshape(-1, x.shape[-1]).contiguous())
        return y.view(*x.shape[:-1], y.shape[-1])


class _LayersOutput:
    """What layers of transformers return, where nothing but their result is wanted."""

    def __init__(self, hidden: Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, place: int) -> Tensor:
        return (self.last_hidden_state,)[place]

    def __getattr__(self, name: str) -> None:
        """Past keys, router logits and the like: there are none."""


class _Given(nn.Module):
    """Stands where the layers were, so that what comes behind them can be computed by itself."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self._layers = (layers,)  # which are no part of it

    def __getattr__(self, name: str) -> Any:
        """Numbers that some heads look up there."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._layers[0], name)

    def forward(self, *_args: object, hidden: Tensor, **_beside: object) -> _LayersOutput:
        """What the layers gave."""
        return _LayersOutput(hidden)


class GuestParts:
    """A causal language model of transformers in two parts.

    Attributes:
        embedding: [vocab_size, hidden].
        linears: the linear layers, ours.
    """

    def __init__(self, model: Any) -> None:
        """`model`: a PreTrainedModel that attends by ATTENTION. It is changed."""
        # What models say of the name of their layers is of another model, for some: the embedding is among them.
        embedding = model.get_input_embeddings()
        name, self._layers = next(
            (name, part) for name, part in model.named_children() if any(each is embedding for each in part.modules())
        )
        self._model = model
        self.embedding: Tensor = embedding.weight
        self.linears: list[Linear] = []
        self._carrier = Carrier()
        self._remembering = put_in(self._layers, self._carrier)
        setattr(model, name, _Given(self._layers))

    @property
    def remembers(self) -> bool:
        """Whether some of its layers keep a state of each sequence."""
        return bool(self._remembering)

    @property
    def tensors(self) -> list[Tensor]:
        """All weights but those of `linears`, each once."""
        found = [t for part in (self._layers, self._model) for t in (*part.parameters(), *part.buffers())]
        return list({id(tensor): tensor for tensor in found}.values())

    def hidden(self, tokens: Tensor, positions: Tensor, attends: Attends, passes: Passes | None = None) -> Tensor:
        """[tokens, hidden] behind the last layer, of int64 [tokens]. `passes`: where it `remembers`."""
        self._carrier.passes = passes
        found = self._layers(
            input_ids=tokens.unsqueeze(0), position_ids=positions.unsqueeze(0), use_cache=False, attends=attends
        )
        hidden: Tensor = found[0][0]
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, vocab_size] of [rows, hidden]."""
        tokens = torch.zeros(1, hidden.shape[0], dtype=torch.int64, device=hidden.device)  # some look how many they are
        logits: Tensor = self._model(input_ids=tokens, hidden=hidden.unsqueeze(0), use_cache=False).logits
        return logits[0]

    def compute_in(self, kernels: Kernels, fmt: WeightFormat, routers: int) -> None:
        """Have `kernels` compute linear layers in `fmt`: all but those of `routers` outputs, which choose experts.

        In layers that keep a state only those that a step has called: of some the weights are read.
        """
        kept = {part for layer in self._remembering for part in layer.modules() if part not in layer.called}
        for part in (self._layers, self._model):
            for parent in part.modules():
                for name, layer in parent.named_children():
                    # Not what is derived from it, and may compute something else.
                    if type(layer) is nn.Linear and layer.out_features != routers and layer not in kept:
                        bias = None if layer.bias is None else layer.bias.detach()
                        ours = kernels.linear(layer.weight.detach(), bias, fmt)
                        self.linears.append(ours)
                        setattr(parent, name, _OurLinear(ours))
