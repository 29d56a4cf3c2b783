"""Reads the models that an engine is to load: weights and tokenizer, which must fit each other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from headgate.engine.device import computing_on
from headgate.engine.errors import CheckpointError
from headgate.engine.kernels.interface import Kernels
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.models.loader import LoadedDecoder
from headgate.engine.models.loading import load_model
from headgate.engine.models.weights.tensors import Tensors
from headgate.engine.settings import ModelSpec
from headgate.engine.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

_TELLING_S = 3.0
"""Seconds between two lines of the log on how far a model is read."""


@dataclass(frozen=True, slots=True)
class ReadModel:
    """A model that was read. Whoever keeps it keeps the weights, which a model that sleeps gives up."""

    spec: ModelSpec
    loaded: LoadedDecoder
    tokenizer: Tokenizer

    @property
    def decoder(self) -> LanguageModel:
        """What computes it."""
        return self.loaded.decoder

    @property
    def context_length(self) -> int:
        """Most tokens of a sequence, whatever memory there is."""
        own = self.decoder.spec.context_length
        return min(self.spec.context_length or own, own)


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads models for a device.

    Attributes:
        kernels: that they are to be computed with.
        device: where their weights go.
        keep_quantized: see EngineSettings.
        tensors: opens a checkpoint's folder.
        clock: in seconds.
    """

    kernels: Kernels
    device: torch.device
    keep_quantized: bool
    tensors: Callable[[Path], Tensors]
    clock: Callable[[], float]

    def read(self, spec: ModelSpec) -> ReadModel:
        """The model of this spec.

        Raises:
            CheckpointError: naming the model, and what is wrong with its checkpoint.
        """
        try:
            return self._read(spec)
        except CheckpointError as error:
            raise type(error)(f"the model '{spec.name}': {error}") from error

    def read_decoder(self, spec: ModelSpec) -> LoadedDecoder:
        """What computes it. CheckpointError as of `load_model`."""
        return load_model(
            spec.path,
            self.kernels,
            dtype=spec.dtype,
            fmt=spec.weights,
            device=self.device,
            context_length=spec.context_length,
            keep_packed=self.keep_quantized,
            adapter=spec.adapter,
            adapters=spec.adapters,
            progress=self._telling(spec),
            tensors=self.tensors,
        )

    def _read(self, spec: ModelSpec) -> ReadModel:
        started = self.clock()
        Tokenizer.file_of(spec.path)  # if there is none, that is told before weights are read
        with computing_on(self.device):
            loaded = self.read_decoder(spec)
        # After the weights, whose quantising takes the most memory: a large vocabulary takes 60 MB itself.
        tokenizer = Tokenizer.load(spec.path)
        vocab_size = loaded.decoder.spec.vocab_size
        if tokenizer.vocab_size > vocab_size:
            raise CheckpointError(
                f"{spec.path}: tokenizer.json has token ids up to {tokenizer.vocab_size - 1}; "
                f"vocab_size {vocab_size} of config.json accepts those below {vocab_size}"
            )
        logger.info("loaded %s from %s in %.2f s", spec.name, spec.path, self.clock() - started)
        return ReadModel(spec, loaded, tokenizer)

    def _telling(self, spec: ModelSpec) -> Callable[[int, int], None]:
        """Of how far the weights were read, where that takes long."""
        told = self.clock()

        def tell(layers: int, whole: int) -> None:
            nonlocal told
            if self.clock() - told >= _TELLING_S:
                told = self.clock()
                logger.info("loading %s: %d of %d layers", spec.name, layers, whole)

        return tell
