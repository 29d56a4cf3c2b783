"""What the engine refuses, and why."""

from __future__ import annotations

import torch

_NO_MEMORY = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""What errors say that have no class of their own: those of torch's allocator for the CPU, of CUDA and of cuBLAS."""


def lacks_memory(error: BaseException) -> bool:
    """Whether a device's or the host's memory did not suffice, and less work may fit."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)


class EngineError(Exception):
    """Base of what the engine raises on purpose."""


class PromptTooLong(EngineError):
    """The prompt leaves no room for a single token. `at_least`: it was not counted further than to see that."""

    def __init__(self, prompt_tokens: int, limit: int, *, at_least: bool = False) -> None:
        self.prompt_tokens = prompt_tokens
        self.limit = limit
        self.at_least = at_least
        some = f"{'at least ' if at_least else ''}{prompt_tokens}"
        super().__init__(f"the prompt has {some} tokens; the model takes at most {limit}, one of them new")


class UnknownModel(EngineError):
    """No model of that name is loaded."""


class EngineStopped(EngineError):
    """The engine takes no requests: it has not started, is draining or has stopped."""


class ModelBusy(EngineError):
    """The model cannot sleep now."""

    def __init__(self, name: str, running: int, waiting: int) -> None:
        super().__init__(f"the model '{name}' is wanted: {running} of its requests run, {waiting} wait")


class ModelAsleep(EngineError):
    """The model is asleep, and what it was asked for is not worth waking it."""


class WakeFailed(EngineError):
    """The model is asleep and cannot be woken."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"the model '{name}' is asleep and cannot be woken: {why}")


class ScoringFailed(EngineError):
    """A continuation was not scored to its end: a step failed, or the engine is stopping."""


class ProbeFailed(EngineError):
    """A prompt's hidden state was not computed: a step failed, or the engine is stopping."""


class CheckpointError(EngineError):
    """A checkpoint folder cannot be served: the message names the file, and the tensor or key where there is one."""


class ModelsTooLarge(EngineError):
    """Models, or their keys and values, do not fit the device's memory."""

    def __init__(self, device: torch.device, error: BaseException) -> None:
        less = "fewer models, weights of int8 or int4, and a lower kv_bytes or max_step_tokens take less"
        super().__init__(f"the models do not fit the memory of {device}: {error}; {less}")


class UnknownArchitecture(CheckpointError):
    """The checkpoint's architecture has no specification here."""
