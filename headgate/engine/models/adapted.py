"""A decoder whose sequences may each have a LoRA adapter of their own, beside others in one step."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from headgate.engine.errors import CheckpointError
from headgate.engine.kernels.interface import Kernels, Mlp
from headgate.engine.models.adapted_linear import AdaptedLinear, AdapterRows, Owners, Stack
from headgate.engine.models.adapter import Adapter
from headgate.engine.models.decoder import Decoder, DecoderWeights, Layer
from headgate.engine.models.identity import adapted_revision
from headgate.engine.models.opening import Opened
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.models.tensors import Tensors
from headgate.engine.models.weights_reader import Stacked
from headgate.engine.quant.linear import DenseLinear, Linear

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdapterFacts:
    """What is worth knowing of an adapter. `revision` changes when it, or what it adapts, does."""

    revision: str
    parameters: int
    nbytes: int
    """Of its factors as they are read: where layers are one here, zeros stand between their factors."""


class AdaptedDecoder(Decoder):
    """Computes steps without adapters as any decoder; `tuned` computes the others.

    Attributes:
        tuned: the same decoder for rows with adapters, those of `rows`.
        rows: which adapter each row of a step has.
        adapters: what is known of each, by name, in the order of their numbers from 1 on.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        weights: DecoderWeights,
        kernels: Kernels,
        adapted: DecoderWeights,
        rows: AdapterRows,
        adapters: Mapping[str, AdapterFacts],
    ) -> None:
        """`adapted`: the weights with AdaptedLinear in them."""
        super().__init__(spec, weights, kernels)
        self.tuned = Decoder(spec, adapted, kernels, beside=self)
        self.rows = rows
        self.adapters = adapters

    @property
    def kept(self) -> object:
        """See LanguageModel."""
        return super().kept, self.tuned.kept


def with_adapters(
    spec: DecoderSpec,
    weights: DecoderWeights,
    kernels: Kernels,
    folders: Mapping[str, Path],
    stacked: Sequence[Stacked],
    opened: Opened[Tensors],
    revision: str,
) -> AdaptedDecoder:
    """A decoder with the adapters in `folders`, by name.

    Args:
        spec: of the decoder.
        weights: of the decoder.
        kernels: what computes.
        folders: in PEFT's files.
        stacked: which layers of the checkpoint its linear layers are made of.
        opened: the checkpoint.
        revision: of the checkpoint.

    Raises:
        CheckpointError: naming the adapter, the file, and the tensor or key that is missing, damaged, misshapen or of
            a part that rows of a batch share.
    """
    reader = _Reader(weights.embedding, kernels, AdapterRows(len(folders), weights.embedding.device))
    layers = {id(linear) for layer in weights.layers for linear in _linears(layer)}
    facts: dict[str, AdapterFacts] = {}
    for number, (name, folder) in enumerate(folders.items(), 1):
        started = time.perf_counter()
        try:
            adapter = Adapter(folder, opened.stored)
            read = [reader.read(number, adapter, each) for each in stacked if id(each.linear) in layers]
            _refuse_rest(folder, adapter.left(spec.names.unread))
        except CheckpointError as error:
            raise CheckpointError(f"the adapter '{name}': {error}") from error
        parameters, nbytes = (sum(counts) for counts in zip(*read, strict=True))
        facts[name] = AdapterFacts(adapted_revision(revision, adapter), parameters, nbytes)
        seconds = time.perf_counter() - started
        logger.info("loaded the adapter %s from %s: %.2f MB in %.2f s", name, folder, nbytes / 1e6, seconds)
    return AdaptedDecoder(spec, weights, kernels, reader.adapted(weights), reader.rows, facts)


class _Reader:
    """Reads the factors of adapters, layer by layer, and puts them into layers."""

    def __init__(self, like: Tensor, kernels: Kernels, rows: AdapterRows) -> None:
        """`like`: of the dtype and on the device that is computed with."""
        self.rows = rows
        self._kernels = kernels
        self._like = like
        self._factors: dict[int, dict[int, tuple[Tensor, Tensor]]] = {}
        """By the identity of a linear layer and the number of an adapter."""

    def read(self, number: int, adapter: Adapter, stacked: Stacked) -> tuple[int, int]:
        """Read what an adapter has for a layer; how many numbers that are, and bytes as they are kept."""
        found = [
            adapter.factors(f"{name}.weight", (width, stacked.inputs))
            for name, width in zip(stacked.names, stacked.widths, strict=True)
        ]
        if not any(found):
            return 0, 0
        downs = [part[0] for part in found if part is not None]
        # The layer's outputs, each stacked layer's from its own rank.
        ups = [
            torch.zeros(width, 0) if part is None else part[1].float() * part[2]
            for part, width in zip(found, stacked.widths, strict=True)
        ]
        down, up = torch.cat([each.float() for each in downs]), _diagonal(ups)
        for factor in (down, up):
            if not factor.isfinite().all():
                raise CheckpointError(f"of {stacked.names[0]!r} there are factors that are not finite")
        if stacked.order is not None:
            up = up[stacked.order.cpu()]
        kept = down.to(self._like), up.to(self._like)
        self._factors.setdefault(id(stacked.linear), {})[number] = kept
        numbers = sum(part[0].numel() + part[1].numel() for part in found if part is not None)
        return numbers, sum(factor.nbytes for factor in kept)

    def adapted(self, weights: DecoderWeights) -> DecoderWeights:
        """The weights with what was read."""
        last = len(weights.layers) - 1
        layers = [
            self._layer(layer, self.rows.wanted if at == last else self.rows.every)
            for at, layer in enumerate(weights.layers)
        ]
        return replace(weights, layers=layers)

    def _layer(self, layer: Layer, fed: Owners) -> Layer:
        every, mlp, delta = self.rows.every, layer.mlp, layer.delta
        if isinstance(mlp, Mlp):
            mlp = replace(mlp, gate_up=self._linear(mlp.gate_up, fed), down=self._linear(mlp.down, fed))
        if delta is not None:
            delta = replace(delta, gates=self._linear(delta.gates, every))
        qkv, output = self._linear(layer.qkv, every), self._linear(layer.output, every)
        return replace(layer, qkv=qkv, output=output, mlp=mlp, delta=delta)

    def _linear(self, base: Linear, owners: Owners) -> Linear:
        factors = self._factors.pop(id(base), None)
        if factors is None:
            return base
        if self._kernels.rows() is None:
            # Layers like the others, so that a row's result depends as little on those beside it.
            pairs = {n: tuple(self._kernels.linear(f, None, "native") for f in pair) for n, pair in factors.items()}
            return AdaptedLinear(base, {n: (down, up) for n, (down, up) in pairs.items()}, None, owners)
        stack = self._stack(factors)
        own = self._kernels.adapted(base, stack, owners)
        if own is not None:
            return own
        views = {n: (stack.down[n, : len(d)], stack.up[n, : len(d)].t()) for n, (d, _) in factors.items()}
        return AdaptedLinear(base, {n: (DenseLinear(d), DenseLinear(u)) for n, (d, u) in views.items()}, stack, owners)

    def _stack(self, factors: Mapping[int, tuple[Tensor, Tensor]]) -> Stack:
        rank = max(len(down) for down, _ in factors.values())
        down, up = next(iter(factors.values()))
        count = self.rows.count + 1
        downs, ups = (self._like.new_zeros(count, rank, width) for width in (down.shape[1], up.shape[0]))
        for number, (down, up) in factors.items():
            downs[number, : len(down)] = down
            ups[number, : len(down)] = up.t()
        return Stack.of(downs, ups)


def _diagonal(blocks: Sequence[Tensor]) -> Tensor:
    """Each block beside and below the one before, zeros elsewhere."""
    whole = torch.zeros(*(sum(block.shape[dim] for block in blocks) for dim in (0, 1)))
    row = column = 0
    for block in blocks:
        whole[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return whole


def _linears(layer: Layer) -> tuple[Linear, ...]:
    """Those that rows may have factors of."""
    mlp, delta = layer.mlp, layer.delta
    gates = () if delta is None else (delta.gates,)
    return layer.qkv, layer.output, *gates, *((mlp.gate_up, mlp.down) if isinstance(mlp, Mlp) else ())


def _refuse_rest(folder: Path, left: Sequence[str]) -> None:
    if left:
        raise CheckpointError(
            f"{folder}: it has something for {left[0]!r}, and for {len(left) - 1} more, that cannot be a row's of a "
            "batch: factors of the layers of attention and of MLPs that are no experts can; models[].adapter takes "
            "other matrices of a checkpoint, too"
        )
