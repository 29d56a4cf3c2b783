"""Requests of every kind, whatever becomes of them."""

from __future__ import annotations

from typing import Any

import aiohttp

_CHAT = "/v1/chat/completions"
_RESPONSES = "/v1/responses"


async def ask(session: aiohttp.ClientSession, embeds: str | None, number: int) -> str:
    """One request of the mix; what kind it was, and how it ended."""
    text = _question(number)
    small: dict[str, Any] = {"model": "demo-student", "max_tokens": 12, "temperature": 1.0, "ignore_eos": True}
    known = _chat("What is 12 plus 30?", model="demo-student", max_tokens=16)
    match number % 40:
        case 0:
            return await _sent(session, "model", _chat(text, **small))
        case 1:
            return await _sent(session, "model, stream", _chat(text, **small, stream=True))
        case 2:
            return await _left(session, "model", _chat(text, **{**small, "max_tokens": 200}))
        case 3:
            return await ask_new(session, number)
        case 4:
            return await _sent(session, "upstream, stream", _chat(text, model="fixed", stream=True))
        case 5:
            return await _left(session, "upstream", _chat(text, model="paced"))
        case 6:
            return await _sent(session, "no such model", _chat(text, model=f"none-{number}"))
        case 7:
            return await _sent(session, "wrong parameter", _chat(text, **{**small, "top_p": -number}))
        case 8:
            return await _sent(session, "no such address", {}, f"/v1/nowhere/{number}")
        case 9:
            wrong = {"Authorization": f"Bearer wrong-{number}"}
            return await _sent(session, "wrong key", _chat(text, **small), headers=wrong)
        case 10:
            return await _sent(session, "count", {"model": "demo-student", "prompt": text}, "/tokenize")
        case 11 if embeds is not None:
            return await _sent(session, "embedding", {"model": embeds, "input": text}, "/v1/embeddings")
        case 12:
            return await _sent(session, "response, stored", {"model": "fixed", "input": text}, _RESPONSES)
        case 13:
            body = {"model": "fixed", "input": text, "background": True}
            return await _sent(session, "response, background", body, _RESPONSES)
        case odd if odd % 2:
            return await _sent(session, "cached, stream", {**known, "stream": True})
        case _:
            return await _sent(session, "cached", known)


async def ask_new(session: aiohttp.ClientSession, number: int) -> str:
    """A question that nobody had before, for another server: it is embedded and read, compared, answered, stored."""
    return await _sent(session, "upstream, stored", _chat(_question(number), model="fixed", temperature=0))


def _question(number: int) -> str:
    return f"What is {number} plus {number % 7}?"


def _chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


async def _sent(
    session: aiohttp.ClientSession, kind: str, body: dict[str, Any], path: str = _CHAT, **options: Any
) -> str:
    async with session.post(path, json=body, **options) as reply:
        await reply.read()
        return f"{kind}: {reply.status}"


async def _left(session: aiohttp.ClientSession, kind: str, body: dict[str, Any]) -> str:
    """The client is gone after the first line of the stream."""
    reply = await session.post(_CHAT, json={**body, "stream": True})
    await reply.content.readline()
    reply.close()
    return f"{kind}, left: {reply.status}"
