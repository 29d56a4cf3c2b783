"""Fields that protocols share."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, Struct

from headgate.gateway.road.request import Sampling
from headgate.gateway.wire.errors import invalid
from headgate.gateway.wire.labels import EndUser

ModelName = Annotated[
    str, Meta(min_length=1, description="auto, small, large, or a name from GET /v1/models; none: the default.")
]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
StopString = Annotated[str, Meta(min_length=1)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
TokenId = Annotated[int, Meta(ge=0)]

_TOKEN_ID = re.compile(r"\d{1,9}")


class StreamOptions(Struct, forbid_unknown_fields=True):
    """Options of a streamed reply."""

    include_usage: bool | None = None
    include_obfuscation: Annotated[bool | None, Meta(description="Accepted; no padding is sent.")] = None


class SamplingFields(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How tokens are chosen and when to stop. `top_k` and what follows it are extensions to OpenAI's API."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Bias] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=4)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    n: Annotated[int, Meta(ge=1, le=16)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: EndUser | None = None
    top_k: Annotated[int, Meta(ge=-1, description="Keep the k likeliest tokens; 0 or -1 keeps all.")] | None = None
    min_p: Annotated[float, Meta(ge=0, lt=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=64)] | None = None
    ignore_eos: bool | None = None

    def sampling(self) -> Sampling:
        """The protocol-neutral value; ApiError 400 where a key of `logit_bias` is no token id."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=None if self.top_k is None else max(self.top_k, 0),
            min_p=self.min_p or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            repetition_penalty=self.repetition_penalty or 1.0,
            logit_bias=tuple((_token_id(key), value) for key, value in sorted((self.logit_bias or {}).items())),
            seed=self.seed,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            ignore_eos=bool(self.ignore_eos),
        )


def check_stream_options(stream: bool | None, options: StreamOptions | None) -> None:
    """ApiError 400 where stream options come without a stream."""
    if options is not None and not stream:
        raise invalid("'stream_options' is only allowed when 'stream' is true.", "stream_options", "invalid_value")


def stop_strings(stop: str | list[str] | None) -> tuple[str, ...]:
    """The stop strings as a tuple."""
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _token_id(key: str) -> int:
    if not _TOKEN_ID.fullmatch(key):
        message = f"Invalid key in 'logit_bias': '{key}'. Expected a token id written as an integer, such as '42'."
        raise invalid(message, "logit_bias", "invalid_value")
    return int(key)
