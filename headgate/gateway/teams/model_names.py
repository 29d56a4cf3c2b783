"""The names that a team's requests use for models."""

from __future__ import annotations

from dataclasses import replace

from headgate.gateway.road.request import ChatRequest
from headgate.gateway.teams.keys import Principal
from headgate.gateway.wire.errors import given, not_permitted


def model_name(asked: str, principal: Principal) -> str:
    """What a name means to a team: its aliases are followed, and no name is its default. ApiError 400 without one."""
    models = principal.policy.models
    name = given(asked or models.default, "model")
    return models.aliases.get(name, name)


def check_allowed(name: str, principal: Principal) -> None:
    """ApiError 403 where a key may not ask the model of this id."""
    if principal.models is not None and name not in principal.models:
        shown = ", ".join(sorted(principal.models))
        raise not_permitted(f"The model '{name}' may not be used with this key. Available: {shown}.", "model")


def named(request: ChatRequest, principal: Principal) -> ChatRequest:
    """The request under the name that its model has here."""
    name = model_name(request.model, principal)
    return request if name == request.model else replace(request, model=name)
