"""What is known of a loaded model, for those who choose among models and price them."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.engine.models.generation import SamplingDefaults
from headgate.engine.text.reasoning import Thinking
from headgate.engine.text.tool_calls import CallFormat


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts about a loaded model. `weight_bytes`: of the linear layers, all experts; `expert_bytes`: of one expert."""

    name: str
    path: str
    architecture: str
    context_length: int
    vocab_size: int
    parameters: int
    active_parameters: int
    weight_bytes: int
    expert_bytes: float
    experts: int
    experts_per_token: int
    kv_bytes_per_token: int
    dtype: str
    weights: str
    device: str
    revision: str
    defaults: SamplingDefaults
    text_revision: str = ""
    """Models of one revision turn a conversation into the same tokens."""
    tool_calls: CallFormat | None = None
    """How it writes calls of functions; None where it is told of none."""
    thinks: Thinking | None = None
    """How it thinks aloud before its answer; None where it does not."""
    hand_over: str = ""
    """How an answer of it begins that leaves the question to a larger model; empty where it was not taught that."""
    adapter_of: str = ""
    """The model whose weights, cache and steps it shares, with an adapter of its own; empty: it shares none."""
    state_bytes: int = 0
    """Of what is kept of a sequence beside keys and values, which each of its tokens reads and writes."""
    sees: bool = False
    """Whether prompts may have pictures."""
    max_running: int = 64
    max_step_tokens: int = 512

    def weight_bytes_read(self, batch: int) -> float:
        """Bytes of weights a decode step of `batch` tokens reads.

        Experts are taken as chosen uniformly: B tokens that choose k of E each touch E (1 - (1 - k/E)^B) of them.
        """
        if not self.experts:
            return self.weight_bytes
        untouched = self.experts * (1 - self.experts_per_token / self.experts) ** batch
        return self.weight_bytes - untouched * self.expert_bytes
