"""What a model's lane tells of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.engine.kv.tiers import TierStats


@dataclass(frozen=True, slots=True)
class ModelStats:
    """A model's gauges now and counters since start. Token counts are tokens, times seconds."""

    running: int
    waiting: int
    pending_tokens: int
    """Prompt tokens that running and waiting sequences still lack, as far as no block is known to hold them."""
    kv_blocks_used: int
    kv_blocks_total: int
    kv_bytes: int
    """Of these blocks and of the pages; 0 while the model sleeps."""
    prefix_queries: int
    """Prompt tokens looked up in the prefix cache."""
    prefix_hits: int
    """Of these, tokens found."""
    preemptions: int
    prompt_tokens: int
    """Prompt tokens computed, recomputation after a preemption included."""
    generated_tokens: int
    steps: int
    step_seconds: float
    forward_seconds: float
    """Of these, inside the decoder and its output layer; the others build inputs and sample."""
    failed_steps: int
    short_steps: int
    """Steps that did not fit the device's memory, after which smaller ones were taken."""
    background: int
    """Background sequences that have not ended; `running` and `waiting` count none of them."""
    background_preemptions: int
    background_seconds: float
    """Background work's share of the step time, by tokens computed."""
    pinned_blocks: int
    """Blocks of prompts that stay in the prefix cache."""
    kv_pages_used: int = 0
    kv_pages_total: int = 0
    """What layers with a window have instead of blocks, where the others see all."""
    pictures: int = 0
    """Pictures looked at."""
    picture_seconds: float = 0.0
    """Of the step time, in which they were."""
    unrecorded: int = 0
    """Sizes of decode steps that are still to be recorded as CUDA graphs."""
    guessed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Tokens that steps checked unasked, by whose they were (`prompt`, `model`): right ones, and wrong ones."""
    tiers: TierStats | None = None
    """Of what the pool has overwritten, where it is kept."""

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache that sequences hold, 0 to 1: of its blocks or of its pages, whatever is fuller."""
        return max(self.kv_blocks_used / self.kv_blocks_total, self.kv_pages_used / max(1, self.kv_pages_total))
