"""Token usage as every OpenAI-shaped reply reports it."""

from __future__ import annotations

from msgspec import Struct

from headgate.gateway.road.request import Usage


class PromptTokensDetails(Struct):
    """`cached_tokens` were taken from the prefix cache instead of being computed. Writing to it costs nothing.
    `image_tokens` are those of pictures, as far as it is known.
    """

    cached_tokens: int
    text_tokens: int
    image_tokens: int
    cache_write_tokens: int = 0
    audio_tokens: int = 0


class CompletionTokensDetails(Struct):
    """Tokens of reasoning; those that a draft proposed (`accepted_prediction_tokens`); and in
    `rejected_prediction_tokens` those of an answer that a cascade did not give, which count too, and those that a draft
    proposed in vain, which do not.
    """

    reasoning_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int
    text_tokens: int
    audio_tokens: int = 0


class UsageBody(Struct):
    """Token counts, all choices together; the prompt counts once."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


def usage_body(usage: Usage) -> UsageBody:
    """The wire form of `usage`."""
    return UsageBody(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        PromptTokensDetails(usage.cached_tokens, usage.prompt_tokens - usage.image_tokens, usage.image_tokens),
        CompletionTokensDetails(
            usage.reasoning_tokens,
            usage.drafted_tokens,
            usage.rejected_tokens + usage.misdrafted_tokens,
            usage.completion_tokens,
        ),
    )
