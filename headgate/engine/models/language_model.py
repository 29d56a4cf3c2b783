"""What the engine asks of a model: tokens in, logits out, with keys and values in its paged cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from headgate.engine.kernels.device_rows import DeviceStep
from headgate.engine.kernels.interface import AttentionBatch, Kernels, KVLayer
from headgate.engine.kernels.states import StateShape
from headgate.engine.kernels.whole_step import DecodeBatch
from headgate.engine.models.eyes import Eyes, Given


def furthest(windows: Sequence[int | None]) -> int | None:
    """How far back a token sees in any of the layers with these windows; None where one sees all."""
    bounds = [window for window in windows if window is not None]
    return max(bounds) if bounds and len(bounds) == len(windows) else None


class ModelShape(Protocol):
    """What is to be known of a model to serve it. Widths are in features, lengths in tokens."""

    @property
    def architecture(self) -> str:
        """Its name in config.json."""
        ...

    @property
    def kv_shapes(self) -> Sequence[tuple[int, int]]:
        """Per layer that attends: heads of keys and of values, and the numbers of a head in the cache."""
        ...

    @property
    def state_shapes(self) -> Sequence[StateShape]:
        """What is kept of a sequence beside keys and values, however long it is; empty for most."""
        ...

    @property
    def kv_windows(self) -> Sequence[int | None]:
        """Per layer that attends: positions back, itself included, that a token sees; None is all."""
        ...

    @property
    def window(self) -> int | None:
        """The furthest of these; None where a layer sees all."""
        ...

    @property
    def vocab_size(self) -> int:
        """Logits of a token."""
        ...

    @property
    def context_length(self) -> int:
        """Most tokens of a sequence."""
        ...

    @property
    def expert_count(self) -> int:
        """Experts of a layer that has some; 0 without."""
        ...

    @property
    def experts_per_token(self) -> int:
        """How many of them a token passes; 0 without."""
        ...


class LanguageModel(Protocol):
    """A model with its weights on a device."""

    kernels: Kernels
    eyes: Eyes | None
    """The part that sees, where there is one."""

    @property
    def spec(self) -> ModelShape:
        """See ModelShape."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of activations and cache."""
        ...

    @property
    def kept(self) -> object:
        """All that is its own of what it keeps."""
        ...

    @property
    def weight_bytes(self) -> int:
        """Bytes one token reads of the layers and the output layer, all experts counted as read."""
        ...

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert's weights, summed over the layers; 0 without experts."""
        ...

    @property
    def decodes(self) -> bool:
        """Whether it has its step in one call: `decode` can be called."""
        ...

    @property
    def steps_on_device(self) -> bool:
        """Whether `decoded` can be called, with kernels that have such steps."""
        ...

    def forward(
        self, tokens: Tensor, positions: Tensor, batch: AttentionBatch, cache: Sequence[KVLayer], rows: Tensor
    ) -> Tensor:
        """One step over all its sequences: `logits` of `hidden`.

        Where it `decodes`, `positions` and the batch's slots may be empty: they follow from the tables then.

        Returns:
            [samples, vocab_size] logits in the compute dtype.
        """
        ...

    def likeliest(
        self, tokens: Tensor, positions: Tensor, batch: AttentionBatch, cache: Sequence[KVLayer], rows: Tensor
    ) -> list[int]:
        """What greedy decoding takes of the logits of `forward`; -1 for a row that has no distribution."""
        ...

    def decode(
        self, batch: DecodeBatch, cache: Sequence[KVLayer], most: int, interrupt: Tensor
    ) -> tuple[list[list[int]], float]:
        """Up to `most` steps in a row, in each of which every sequence gets the token that the step before chose.

        They end early after a step in which a sequence got a token that ends it, or during which another thread set
        `interrupt`, int64 [1], to other than 0. Token for token what as many steps of `forward` and the sampler give.

        Returns:
            Each sequence's tokens, equally many for all, -1 for one whose logits were not finite; and the seconds
            in the layers and the output layer.
        """
        ...

    def hidden(
        self,
        tokens: Tensor,
        positions: Tensor,
        batch: AttentionBatch,
        cache: Sequence[KVLayer],
        rows: Tensor,
        given: Given | None = None,
    ) -> Tensor:
        """The layers of one step over all its sequences.

        Args:
            tokens: [tokens] int64 ids, sequence after sequence.
            positions: [tokens] int64, each token's place in its sequence.
            batch: geometry of the step.
            cache: one KVLayer per layer; the step's keys and values are written to it.
            rows: [samples] int64, the rows whose logits are wanted.
            given: what stands in the places of some tokens' rows of the embedding, for a model with `eyes`. The step's
                positions and slots are there then.

        Returns:
            [samples, hidden] in the compute dtype, normalised.
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, vocab_size] in the compute dtype, from rows of what `hidden` gives."""
        ...

    def decoded(self, step: DeviceStep, cache: Sequence[KVLayer], longest: int) -> Tensor:
        """Logits of a step whose inputs lie on the device, a row per token; nothing in it waits for the device.

        `longest`: most tokens of any sequence there will ever be: what holds their angles must not move.
        """
        ...
