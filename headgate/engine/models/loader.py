"""From a Hugging Face folder to a decoder, and what is worth knowing of it."""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from headgate.engine.errors import CheckpointError
from headgate.engine.kernels.interface import Kernels
from headgate.engine.models.adapters.decoder import AdaptedDecoder, AdapterFacts
from headgate.engine.models.adapters.files import Adapter
from headgate.engine.models.decoder import Decoder
from headgate.engine.models.eyes import read_eyes
from headgate.engine.models.identity import revision
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.models.opening import Opened, folder_tensors, open_checkpoint
from headgate.engine.models.weights.formats import LayerFormats, layer_formats
from headgate.engine.models.weights.keeping import packed_cache
from headgate.engine.models.weights.reader import WeightsReader
from headgate.engine.models.weights.tensors import Tensors
from headgate.engine.quant.linear import WeightFormat

logger = logging.getLogger(__name__)

Dtype = Literal["auto", "float32", "bfloat16"]
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class LoadedDecoder:
    """A decoder and what is worth knowing of its checkpoint."""

    decoder: LanguageModel
    parameters: int
    active_parameters: int
    """Parameters a token uses: of the experts only the chosen ones."""
    revision: str
    """Hex digest that changes when the configuration or the weights' names, shapes, sizes or times do."""

    @property
    def adapters(self) -> Mapping[str, AdapterFacts]:
        """What rows of a batch may have, by name."""
        return self.decoder.adapters if isinstance(self.decoder, AdaptedDecoder) else {}


def load_decoder(
    folder: Path,
    kernels: Kernels,
    *,
    dtype: Dtype = "auto",
    fmt: WeightFormat | LayerFormats = "native",
    device: torch.device | None = None,
    context_length: int | None = None,
    keep_packed: bool = False,
    adapter: Path | None = None,
    adapters: Mapping[str, Path] | None = None,
    progress: Callable[[int, int], None] | None = None,
    tensors: Callable[[Path], Tensors] = folder_tensors,
) -> LoadedDecoder:
    """Load the checkpoint in `folder`.

    `dtype` "auto" is bfloat16 unless the checkpoint is in float32. `fmt` is the format the linear layers are kept in,
    save those that `layer_formats` gives more bits, or says it layer by layer; embedding, norms and routers stay in
    `dtype`. `context_length` lowers the own one. With `keep_packed` weights that are quantised here are written to disk
    for the next time, and those of the last time are used: see `quant.packed_cache`. `adapter`: a folder, see
    `Adapter`. `adapters`: folders by name, which get the numbers from 1 on; without `adapter` the decoder is an
    AdaptedDecoder, which takes others later. `progress` is told how many layers of how many were read. `tensors` opens
    the folder's.

    fp8 weights stay fp8 where the kernels can compute with them and all formats are native; elsewhere they are
    expanded.

    Raises:
        CheckpointError: naming the file and the tensor or key that is missing, damaged, unexpected or misshapen.
    """
    with torch.inference_mode():
        opened = open_checkpoint(folder, tensors)
        config, spec, source = opened.config, opened.spec, opened.source
        if context_length is not None and context_length < spec.context_length:
            spec = replace(spec, context_length=context_length)
        if adapter is not None:
            source.adapter = _adapter(adapter, opened)
        compute = computed_in(config, dtype)
        device = device or torch.device("cpu")
        formats = fmt if isinstance(fmt, LayerFormats) else layer_formats(spec, fmt, int8=kernels.int8)
        cache = None
        if keep_packed and device.type == "cpu":
            cache = packed_cache(folder, source, config, spec, kernels, compute, formats)
        kept = cache.load() if cache is not None else None
        reader = WeightsReader(opened, kernels, compute, device, formats, kept or {})
        weights, linears = reader.weights(progress or (lambda _done, _all: None)), reader.linears
        if cache is not None and linears.packed:
            cache.save({**(kept or {}), **linears.packed})
        if linears.expanded and formats.others == "native":
            logger.info(
                "%s: quantized weights take %.0f MB, expanded to %s; weights: int8 or int4 takes less",
                folder,
                linears.expanded / 1e6,
                str(compute).removeprefix("torch."),
            )
        return_freed_memory()
        source.refuse_leftovers(unread=opened.unread)
        if source.adapter is not None:
            source.adapter.refuse_leftovers(unread=spec.names.unread)
        parameters, identity = source.parameters, revision(config, source)
        if adapter is not None:
            decoder = Decoder(spec, weights, kernels)
        else:
            decoder = adapted = AdaptedDecoder(spec, weights, kernels, linears.stacked, opened, identity)
            read = {number: adapted.read(*each) for number, each in enumerate((adapters or {}).items(), 1)}
            adapted.tune(adapted.tuned_by(read))
        decoder.eyes = read_eyes(folder, config, hidden=spec.hidden, dtype=compute, device=device)
    return LoadedDecoder(decoder, parameters, parameters - spec.idle_expert_parameters, identity)


def _adapter(folder: Path, opened: Opened[Tensors]) -> Adapter:
    adapter = Adapter(folder, opened.stored)
    if opened.spec.tied_head and adapter.adapts(opened.embedding, opened.head):
        raise CheckpointError(
            f"{folder}: the head of the checkpoint is its embedding, of which only one was trained; merge the adapter"
        )
    return adapter


def computed_in(config: Mapping[str, Any], dtype: Dtype) -> torch.dtype:
    """What a checkpoint with this config.json is computed in: what is asked for, or what it says itself."""
    stated = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    return _DTYPES[dtype] if dtype != "auto" else _DTYPES.get(stated, torch.bfloat16)


def return_freed_memory() -> None:
    """To the system: what packing needed for a while stays with the allocator otherwise: a sixth of the weights."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, others need not
        if trim is not None:
            trim(0)
