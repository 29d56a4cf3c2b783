"""`POST /tokenize` and `POST /detokenize`, in the shape that vLLM's clients know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct

from headgate.gateway.road.request import ChatRequest
from headgate.gateway.wire.chat import ChatMessage, conversation
from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import invalid
from headgate.gateway.wire.sampling import TokenId
from headgate.gateway.wire.unimplemented import Neutral, refuse_unsupported

_MODEL = Meta(min_length=1, description="A name that leads to one tokenizer only; none: the team's default.")
TOKENIZE_NEUTRAL: Neutral = {
    "add_generation_prompt": (None, True),
    "continue_final_message": (None, False),
    "chat_template": (None,),
    "chat_template_kwargs": (None, {}),
    "mm_processor_kwargs": (None, {}),
}


class TokenizeRequest(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A text or a conversation, one of the two."""

    model: Annotated[str, _MODEL] | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1)] | None = None
    add_special_tokens: Annotated[
        bool | None,
        Meta(description="What the tokenizer puts around a text. true by default; a chat template writes its own."),
    ] = None
    return_token_strs: Annotated[bool | None, Meta(description="Give the text of each token too.")] = None
    # vLLM's; served only at values that change nothing.
    add_generation_prompt: Any = UNSET
    continue_final_message: Any = UNSET
    chat_template: Any = UNSET
    chat_template_kwargs: Any = UNSET
    mm_processor_kwargs: Any = UNSET


class Tokenized(Struct):
    """The tokens. `max_model_len`: how many the model reads and writes at most."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeRequest(Struct, forbid_unknown_fields=True):
    """Tokens of a model."""

    tokens: list[TokenId]
    model: Annotated[str, _MODEL] | None = None


class Detokenized(Struct):
    """Their text, special tokens spelled out."""

    prompt: str


@dataclass(frozen=True, slots=True)
class ToTokenize:
    """What to read: a conversation as a request would have it, or plain text."""

    model: str
    conversation: ChatRequest | None
    text: str
    special: bool
    """Whether a text gets what the tokenizer puts around it."""
    strings: bool


def parse_tokenize(body: bytes) -> ToTokenize:
    """What `body` asks to have tokenized; ApiError 400 where that is unclear."""
    wire = decode(body, TokenizeRequest)
    refuse_unsupported(wire, TOKENIZE_NEUTRAL)
    if (wire.prompt is None) == (wire.messages is None):
        message = "Expected exactly one of 'prompt' and 'messages'."
        raise invalid(message, "prompt" if wire.messages is None else "messages", "invalid_value")
    strings = bool(wire.return_token_strs)
    if wire.messages is None:
        return ToTokenize(wire.model or "", None, wire.prompt or "", wire.add_special_tokens is not False, strings)
    if wire.add_special_tokens:
        message = "'add_special_tokens' is not supported with 'messages': the chat template writes special tokens."
        raise invalid(message, "add_special_tokens", "unsupported_parameter")
    request = ChatRequest("chat.completions", wire.model or "", conversation(wire.messages))
    return ToTokenize(wire.model or "", request, "", special=False, strings=strings)
