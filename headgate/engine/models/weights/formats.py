"""Which of a model's linear layers have more bits than it was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.engine.models.spec import DecoderSpec
from headgate.engine.quant.linear import WeightFormat

_ENDS = 8
"""One of so many layers is counted to the first ones, and as many to the last."""
_LEAST = 2
"""Of a model of few layers, so many are."""


@dataclass(frozen=True, slots=True)
class LayerFormats:
    """The formats of a model's linear layers.

    Attributes:
        attention: by layer, of the projections to queries, keys and values and of the one behind the attention.
        others: of MLPs, experts and the output layer.
    """

    attention: Sequence[WeightFormat]
    others: WeightFormat


def layer_formats(spec: DecoderSpec, fmt: WeightFormat, *, int8: bool) -> LayerFormats:
    """What `fmt` means for such a model, on kernels that have 8-bit layers or have none.

    Most of what 4 bits cost is lost in the attention, and of that the first layers' share is the largest
    (docs/quantization.md). So it has 8 bits in the first and last eighth of the layers, as llama.cpp's `use_more_bits`
    has it for other matrices, at least in two at either end, and with experts in all of them: there it is a small part
    of the weights.
    """
    if fmt != "int4" or not int8:
        return LayerFormats([fmt] * spec.layers, fmt)
    ends = max(_LEAST, -(-spec.layers // _ENDS)) if spec.experts is None else spec.layers
    wide = [min(number, spec.layers - 1 - number) < ends for number in range(spec.layers)]
    return LayerFormats(["int8" if more else fmt for more in wide], fmt)
