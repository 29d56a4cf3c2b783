"""`POST /tokenize` and `POST /detokenize`: a model's tokens, without asking the model."""

from __future__ import annotations

import asyncio
from functools import partial

from aiohttp import web

from headgate.engine.front.local import LocalModel
from headgate.gateway import keys
from headgate.gateway.api.json_reply import json_reply
from headgate.gateway.edge.long_bodies import aside, in_turn
from headgate.gateway.local.tokenizing import reader
from headgate.gateway.middleware import read_body
from headgate.gateway.teams.system_prompts import prompted
from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import invalid
from headgate.gateway.wire.tokenize import Detokenized, DetokenizeRequest, Tokenized, parse_tokenize


async def tokenize(http: web.Request) -> web.Response:
    """The tokens of a text, or of a conversation as the model would read it."""
    given = await read_body(http)
    wanted = await aside(given, partial(parse_tokenize, given))
    destination = reader((await keys.backend(http)).routes, wanted.model, http[keys.PRINCIPAL])
    model = destination.model
    if wanted.conversation is not None:
        reading = partial(destination.tokens, prompted(wanted.conversation, http[keys.PRINCIPAL]))
    else:
        reading = partial(model.encode, wanted.text, special=wanted.special)
    tokens = await in_turn(http.app[keys.COUNTING], given, reading)
    # A text may have millions of them.
    return await asyncio.to_thread(_tokenized, model, tokens, strings=wanted.strings)


def _tokenized(model: LocalModel, tokens: tuple[int, ...], *, strings: bool) -> web.Response:
    texts = model.pieces(tokens) if strings else None
    return json_reply(Tokenized(len(tokens), model.info.context_length, list(tokens), texts))


async def detokenize(http: web.Request) -> web.Response:
    """The text of tokens."""
    wanted = decode(await read_body(http), DetokenizeRequest)
    destination = reader((await keys.backend(http)).routes, wanted.model or "", http[keys.PRINCIPAL])
    model = destination.model
    size = model.info.vocab_size
    if wanted.tokens and max(wanted.tokens) >= size:
        message = f"Invalid 'tokens': token id {max(wanted.tokens)}. '{destination.id}' knows 0 to {size - 1}."
        raise invalid(message, "tokens", "invalid_value")
    # A body may hold a million of them.
    text = await asyncio.to_thread(model.decode, wanted.tokens, special=True)
    return json_reply(Detokenized(text))
