"""`POST /v1/embeddings`: the wire types and their way into and out of texts and vectors."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, Meta, Raw, Struct

from headgate.cache.embedding.sentence_model import Vector
from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import invalid, unsupported
from headgate.gateway.wire.labels import EndUser

_ROWS_AT_A_TIME = 64
"""Vectors written before others get their turn: some hundred of them are a megabyte of JSON."""


class EmbeddingRequest(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The body of `POST /v1/embeddings`. Parameters not listed are refused, never dropped."""

    model: Annotated[str, Meta(min_length=1, description="The embedding model's id from GET /v1/models.")]
    input: Annotated[str | list[Any], Meta(description="A text or a list of texts. Token ids are refused.")]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[Any, Meta(description="Not supported: leave it out or give null.")] = UNSET
    user: EndUser | None = None
    truncate_prompt_tokens: Annotated[
        Literal[-1] | None, Meta(description="-1 embeds the beginning of a text that is too long, as in vLLM.")
    ] = None


class EmbeddingBody(Struct):
    """A text's vector: numbers, or base64 of little-endian float32."""

    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class EmbeddingUsage(Struct):
    """Tokens that the model read, the marks around each text included."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Struct):
    """The vectors, in the order of the texts."""

    model: str
    data: list[EmbeddingBody]
    usage: EmbeddingUsage
    object: Literal["list"] = "list"


def parse_embedding(body: bytes) -> tuple[EmbeddingRequest, list[str]]:
    """The request in `body` and its texts; ApiError 400 where it is malformed or asks for something not done here."""
    wire = decode(body, EmbeddingRequest)
    if wire.dimensions not in (UNSET, None):
        message = "'dimensions' is not supported: the model is not trained to give shorter vectors. Leave it out."
        raise unsupported("dimensions", message)
    texts = [wire.input] if isinstance(wire.input, str) else wire.input
    if not texts:
        raise invalid("Invalid 'input': empty array. Expected at least 1 element.", "input", "empty_array")
    for at, text in enumerate(texts):
        param = "input" if isinstance(wire.input, str) else f"input[{at}]"
        if isinstance(text, int | list) and not isinstance(text, bool):
            message = (
                "Token ids are not supported in 'input': those of OpenAI's tokenizers mean other words to this model. "
                "Send texts (in LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False))."
            )
            raise unsupported("input", message)
        if not isinstance(text, str):
            raise invalid(f"Invalid type for '{param}': expected a string.", param, "invalid_type")
        if not text:
            raise invalid(f"Invalid '{param}': empty string. Expected at least 1 character.", param, "empty_string")
    return wire, texts


async def encode_embeddings(model: str, vectors: Sequence[Vector], tokens: int, *, binary: bool) -> bytes:
    """The reply's body."""
    rows: list[Raw] = []
    for at, vector in enumerate(vectors):
        if at % _ROWS_AT_A_TIME == 0:
            await asyncio.sleep(0)
        written = base64.b64encode(vector.astype("<f4").tobytes()).decode() if binary else vector.tolist()
        rows.append(Raw(msgspec.json.encode(EmbeddingBody(at, written))))
    body = EmbeddingList(model, cast("list[EmbeddingBody]", rows), EmbeddingUsage(tokens, tokens))
    return msgspec.json.encode(body)
