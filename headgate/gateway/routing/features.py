"""What the router is told of a request."""

from __future__ import annotations

import json
from hashlib import blake2b

from headgate.gateway.road.inputs import inputs_of
from headgate.gateway.road.request import ChatRequest
from headgate.routing.types import Need, RouteFeatures, Vector


def features_of(
    request: ChatRequest, vector: Vector | None, state: Vector | None = None, ends: Vector | None = None
) -> RouteFeatures:
    """What the router is told of a request; `ends` embed its text's cores."""
    return RouteFeatures(
        text=request.last_user_text or "",
        vector=vector,
        prompt_chars=sum(len(m.content or "") for m in request.messages)
        + len(request.prompt or "")
        + sum(len(json.dumps(tool.for_template())) for tool in request.tools),
        max_tokens=request.max_tokens or 0,
        has_tools=bool(request.callable_tools),
        format=request.response_format.type,
        turns=max(len(request.messages), 1),
        system=system_of(request),
        state=state,
        cores=ends,
    )


def needs_of(request: ChatRequest) -> frozenset[Need]:
    """What a destination must understand for it: not every template can tell its model of tools and their calls, and
    few take more than text."""
    tools = bool(request.callable_tools) or any(m.role == "tool" or m.tool_calls for m in request.messages)
    needs: set[Need] = {"tools"} if tools else set()
    if request.response_format.schema is not None:
        needs.add("json")
    return frozenset(needs) | inputs_of(request)


def system_of(request: ChatRequest) -> str:
    """What the application says to the model."""
    return "\n".join(m.content for m in request.messages if m.role == "system" and m.content)


def hash_of(features: RouteFeatures, requested: str, secret: bytes) -> str:
    """A keyed hash of what was decided over; `requested`: the name of the model that was asked."""
    digest = blake2b(key=secret, digest_size=8)
    for part in (requested, features.system, features.text):
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(raw))
        digest.update(raw)
    counts = (features.prompt_chars, features.max_tokens, features.turns, features.has_tools, features.format)
    digest.update(repr(counts).encode())
    for read in (features.vector, features.state, features.cores):
        digest.update(b"" if read is None else read.tobytes())
    return digest.hexdigest()
