"""How the tokens of an answer are chosen: as the request says, else as its model's checkpoint does."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.engine.front.model_info import ModelInfo
from headgate.engine.sampling.params import SamplingParams
from headgate.gateway.road.request import ChatRequest, Sampling
from headgate.gateway.wire.errors import invalid


def temperature(sampling: Sampling, info: ModelInfo) -> float:
    """The request's own, else the checkpoint's."""
    return info.defaults.temperature if sampling.temperature is None else sampling.temperature


def sampling_params(request: ChatRequest, info: ModelInfo) -> SamplingParams:
    """What the engine is told of a request for a model."""
    asked, defaults = request.sampling, info.defaults
    return SamplingParams(
        temperature=temperature(asked, info),
        top_p=defaults.top_p if asked.top_p is None else asked.top_p,
        # What is beyond the vocabulary keeps all, and may be a number that no step's arrays hold.
        top_k=min(defaults.top_k if asked.top_k is None else asked.top_k, info.vocab_size),
        min_p=asked.min_p,
        presence_penalty=asked.presence_penalty,
        frequency_penalty=asked.frequency_penalty,
        repetition_penalty=asked.repetition_penalty,
        logit_bias=asked.logit_bias,
        seed=asked.seed,
        max_tokens=request.max_tokens,
        begin_suppress_tokens=defaults.begin_suppress_tokens,
        stop_token_ids=asked.stop_token_ids,
        ignore_eos=asked.ignore_eos,
        logprobs=request.logprobs,
    )


def check_vocabulary(request: ChatRequest, info: ModelInfo) -> None:
    """ApiError 400 where a request names tokens that a model does not have."""
    if request.sampling.logit_bias:
        _check_tokens("logit_bias", [token for token, _ in request.sampling.logit_bias], info)
    if request.sampling.stop_token_ids:
        _check_tokens("stop_token_ids", request.sampling.stop_token_ids, info)
    if request.prompt and isinstance(request.prompt, tuple):
        _check_tokens("prompt", request.prompt, info)


def _check_tokens(name: str, tokens: Sequence[int], info: ModelInfo) -> None:
    greatest, size = max(tokens), info.vocab_size
    if greatest >= size:
        message = f"Invalid '{name}': token id {greatest}. The model '{info.name}' knows 0 to {size - 1}."
        raise invalid(message, name, "invalid_value")
