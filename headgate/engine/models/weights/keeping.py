"""Which quantised weights on disk are those of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headgate.engine.kernels.interface import Kernels
from headgate.engine.kernels.mixture import ExpertWeights, MixtureWeights
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.models.weights.formats import LayerFormats
from headgate.engine.models.weights.tensors import Tensors
from headgate.engine.quant.int4 import importance_behind
from headgate.engine.quant.linear import PackedWeight
from headgate.engine.quant.packed_cache import PackedCache, content_digest, layout_digest


def packed_cache(
    folder: Path,
    source: Tensors,
    config: Mapping[str, Any],
    spec: DecoderSpec,
    kernels: Kernels,
    dtype: torch.dtype,
    formats: LayerFormats,
) -> PackedCache | None:
    """The cache of this checkpoint's weights in formats that can be kept; None if they cannot."""
    layout = layout_digest(lambda probe: _pack_probe(kernels, probe, formats))
    if layout is None:
        return None
    name = f"{formats.others}-{str(dtype).removeprefix('torch.')}"
    files, adapter = source.files, source.adapter
    if adapter is not None:
        # A file of its own: the same checkpoint may be served by itself, too, and with other adapters.
        name, files = f"{name}-{adapter.identity}", [*files, *adapter.files]
    made_of: list[object] = [name, list(formats.attention), layout, content_digest(files), config]
    order = spec.rope.order(spec.head_dim)
    if order is not None:
        # Their rows are not where the checkpoint has them.
        made_of.append(order)
    identity = sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
    return PackedCache(folder, name, identity, files)


def _pack_probe(kernels: Kernels, probe: Tensor, formats: LayerFormats) -> PackedWeight | None:
    """What a layer of each format and a mixture of an expert and a shared one become, as one weight."""
    importance = importance_behind(torch.arange(1.0, probe.shape[1] + 1))
    layers = [kernels.pack(probe, fmt, importance) for fmt in sorted({*formats.attention, formats.others})]
    width = probe.shape[0] // 2
    expert = ExpertWeights(probe, probe.t()[:, :width].contiguous())
    mixture = MixtureWeights(probe[:1], [expert], 1, True, ExpertWeights(probe[:60], expert.down[:, :30]), probe[:1])
    experts = kernels.pack_experts(mixture, formats.others)
    packed = [layer for layer in layers if layer is not None]
    if experts is None or len(packed) < len(layers):
        return None
    weights = (*packed, experts.gate_up, experts.down)
    parts = [[getattr(w, f.name).flatten().view(torch.uint8) for w in weights] for f in fields(PackedWeight)]
    return PackedWeight(*(torch.cat(part) for part in parts))
