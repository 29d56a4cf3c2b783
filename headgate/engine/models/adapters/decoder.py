"""A decoder whose sequences may each have a LoRA adapter of their own, beside others in one step."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from headgate.engine.errors import CheckpointError
from headgate.engine.kernels.interface import Kernels, Mlp
from headgate.engine.models.adapters.files import Adapter
from headgate.engine.models.adapters.linear import AdaptedLinear, AdapterRows, Owners, Stack
from headgate.engine.models.decoder import Decoder, DecoderWeights, Layer
from headgate.engine.models.identity import adapted_revision
from headgate.engine.models.opening import Opened, stored_name
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.models.weights.linear_reader import Stacked
from headgate.engine.models.weights.tensors import Tensors
from headgate.engine.quant.linear import DenseLinear, Linear

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdapterFacts:
    """What is worth knowing of an adapter. `revision` changes when it, or what it adapts, does."""

    revision: str
    parameters: int
    nbytes: int
    """Of its factors as they are read: where layers are one here, zeros stand between their factors."""


@dataclass(frozen=True, slots=True)
class Factors:
    """What an adapter has for a layer.

    Attributes:
        down: the layer of A.
        up: the one of scale * B.
        stacked: the same as they are put into a Stack, [rank, inputs] and [outputs, rank]; None where none is needed.
    """

    down: Linear
    up: Linear
    stacked: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """An adapter that was read. `factors`: by the place of their layer among those that rows may have some of."""

    name: str
    facts: AdapterFacts
    factors: Mapping[int, Factors]


@dataclass(frozen=True, slots=True)
class Tuning:
    """The adapters that rows of a step may have, as they are computed together. Never changed: others are others.

    Attributes:
        decoder: of the same layers as the one that they adapt, for steps with some of them.
        rows: which adapter each row of such a step has.
        adapters: by their numbers, from 1 on.
    """

    decoder: Decoder
    rows: AdapterRows
    adapters: Mapping[int, LoadedAdapter]


class AdaptedDecoder(Decoder):
    """Computes steps without adapters as any decoder; `tuning` has what computes the others, where there are some.

    `read` and `tuned_by` may be called from a thread of their own while another computes; `tune` may not.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        weights: DecoderWeights,
        kernels: Kernels,
        stacked: Sequence[Stacked],
        opened: Opened[Tensors],
        revision: str,
    ) -> None:
        """A decoder of a checkpoint, without adapters yet.

        Args:
            spec: of the decoder.
            weights: of the decoder.
            kernels: what computes.
            stacked: which layers of the checkpoint its linear layers are made of.
            opened: the checkpoint.
            revision: of the checkpoint.
        """
        super().__init__(spec, weights, kernels)
        layers = {id(linear) for layer in weights.layers for linear in _linears(layer)}
        self._stacked = [each for each in stacked if id(each.linear) in layers]
        # No more of the checkpoint, whose files would stay mapped.
        self._stored: Callable[[str], str] = partial(stored_name, places=opened.places, others=spec.names.places)
        self._revision = revision
        self.tuning: Tuning | None = None

    @property
    def tuned(self) -> Decoder:
        """The decoder for rows with adapters, of which there are some."""
        assert self.tuning is not None, "there are no adapters"
        return self.tuning.decoder

    @property
    def rows(self) -> AdapterRows:
        """Which adapter each row of a step has, where there are some."""
        assert self.tuning is not None, "there are no adapters"
        return self.tuning.rows

    @property
    def loaded(self) -> Mapping[int, LoadedAdapter]:
        """The adapters by their numbers."""
        return {} if self.tuning is None else self.tuning.adapters

    @property
    def adapters(self) -> Mapping[str, AdapterFacts]:
        """What is known of each by name, in the order of their numbers."""
        return {each.name: each.facts for _, each in sorted(self.loaded.items())}

    @property
    def kept(self) -> object:
        """See LanguageModel."""
        return super().kept, None if self.tuning is None else self.tuning.decoder.kept

    @torch.inference_mode()
    def read(self, name: str, folder: Path) -> LoadedAdapter:
        """Read the adapter of PEFT's files in `folder`.

        Raises:
            CheckpointError: naming the adapter, the file, and the tensor or key that is missing, damaged, misshapen or
                of a part that rows of a batch share.
        """
        started = time.perf_counter()
        try:
            adapter = Adapter(folder, self._stored)
            read = [self._read(adapter, each) for each in self._stacked]
            _refuse_rest(folder, adapter.left(self.spec.names.unread))
        except CheckpointError as error:
            raise CheckpointError(f"the adapter '{name}': {error}") from error
        parameters, nbytes = (sum(counts) for counts in zip(*((n, b) for _, n, b in read), strict=True))
        facts = AdapterFacts(adapted_revision(self._revision, adapter), parameters, nbytes)
        seconds = time.perf_counter() - started
        logger.info("loaded the adapter %s from %s: %.2f MB in %.2f s", name, folder, nbytes / 1e6, seconds)
        factors = {at: found for at, (found, _, _) in enumerate(read) if found is not None}
        return LoadedAdapter(name, facts, factors)

    @torch.inference_mode()
    def tuned_by(self, adapters: Mapping[int, LoadedAdapter]) -> Tuning | None:
        """What computes with these adapters, by their numbers from 1 on; None without any.

        Factors that were stacked lie in the new stacks then, and take no more memory once the old ones are let go.
        """
        if not adapters:
            return None
        rows = AdapterRows(max(adapters), self.device)
        builder = _Builder(self._stacked, adapters, self._weights.embedding, rows, self.kernels)
        weights = builder.adapted(self._weights)
        return Tuning(Decoder(self.spec, weights, self.kernels, beside=self), rows, builder.adapters)

    def tune(self, tuning: Tuning | None) -> None:
        """Compute with these adapters from the next step on."""
        self.tuning = tuning

    def _read(self, adapter: Adapter, stacked: Stacked) -> tuple[Factors | None, int, int]:
        """What an adapter has for a layer; how many numbers that are, and bytes as they are kept."""
        found = [
            adapter.factors(f"{name}.weight", (width, stacked.inputs))
            for name, width in zip(stacked.names, stacked.widths, strict=True)
        ]
        if not any(found):
            return None, 0, 0
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
        down, up = down.to(self._weights.embedding), up.to(self._weights.embedding)
        numbers = sum(part[0].numel() + part[1].numel() for part in found if part is not None)
        return self._kept(down, up), numbers, down.nbytes + up.nbytes

    def _kept(self, down: Tensor, up: Tensor) -> Factors:
        if self.kernels.rows() is not None:
            return Factors(DenseLinear(down), DenseLinear(up), (down, up))
        linear = self.kernels.linear
        # Layers like the others, so that a row's result depends as little on those beside it.
        return Factors(linear(down, None, "native"), linear(up, None, "native"))


class _Builder:
    """Puts the factors of adapters into layers."""

    def __init__(
        self,
        stacked: Sequence[Stacked],
        adapters: Mapping[int, LoadedAdapter],
        like: Tensor,
        rows: AdapterRows,
        kernels: Kernels,
    ) -> None:
        """`like`: of the dtype and on the device that is computed with."""
        self._kernels = kernels
        self._places = {id(each.linear): at for at, each in enumerate(stacked)}
        self._factors = {number: dict(each.factors) for number, each in adapters.items()}
        self.adapters = {number: replace(each, factors=self._factors[number]) for number, each in adapters.items()}
        """The same, where they were put."""
        self._like = like
        self.rows = rows

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
        place = self._places.get(id(base))
        factors = {n: each[place] for n, each in self._factors.items() if place is not None and place in each}
        if place is None or not factors:
            return base
        tensors = {n: each.stacked for n, each in factors.items() if each.stacked is not None}
        if not tensors:
            return AdaptedLinear(base, {n: (each.down, each.up) for n, each in factors.items()}, None, owners)
        stack = self._stack(tensors)
        views = {n: (stack.down[n, : len(d)], stack.up[n, : len(d)].t()) for n, (d, _) in tensors.items()}
        pairs = {n: (DenseLinear(d), DenseLinear(u)) for n, (d, u) in views.items()}
        for number, (down, up) in pairs.items():
            self._factors[number][place] = Factors(down, up, views[number])
        own = self._kernels.adapted(base, stack, owners)
        return AdaptedLinear(base, pairs, stack, owners) if own is None else own

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
