"""What a team says before everything that its users say."""

from __future__ import annotations

from dataclasses import replace

from headgate.gateway.road.request import ChatRequest, Message
from headgate.gateway.teams.keys import Principal


def prompted(request: ChatRequest, principal: Principal) -> ChatRequest:
    """A conversation with the team's text before its system prompt, or as that. It is in the cache's keys as any text.

    A plain completion has no system prompt, and is left as it is.
    """
    text = principal.policy.prompts.system_prepend
    if text is None or not request.messages:
        return request
    first = request.messages[0]
    if first.role == "system" and first.content is not None:
        own = replace(first, content=f"{text}\n\n{first.content}")
        return replace(request, messages=(own, *request.messages[1:]))
    return replace(request, messages=(Message("system", text), *request.messages))
