"""What becomes of a request before it takes the road, by what its team's file says."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping
from dataclasses import replace

from headgate.engine.request import Priority
from headgate.gateway.road.request import ChatRequest
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.model_names import named
from headgate.gateway.teams.system_prompts import prompted
from headgate.gateway.wire.errors import invalid

AUTO = "auto"


def as_team(request: ChatRequest, principal: Principal, there: Container[str] | None = None) -> tuple[ChatRequest, str]:
    """The request as its team has it, and the arm of the team's experiment that it is of; an empty text: of none.

    `there`: the models that there are. The router chooses where an arm is none of them, as an adapter that was added
    and could not be served again.

    ApiError 400 where it names no model and the team has no default.
    """
    request = scheduled(named(request, principal), principal)
    if request.unknown and principal.policy.models.drop_params:
        request = replace(request, drops=True)
    weights = _open_arms(principal) if request.model == AUTO else {}
    arm = arm_of(request, principal, weights) if weights else ""
    if there is not None and arm not in there:
        arm = ""
    return prompted(replace(request, model=arm, arm=True) if arm else request, principal), arm


def _open_arms(principal: Principal) -> Mapping[str, float]:
    """The arms that the key may ask: a key may have fewer models than its team, a team fewer than the defaults name."""
    weights, models = principal.policy.experiments.weights, principal.models
    return weights if models is None else {name: weight for name, weight in weights.items() if name in models}


def scheduled(request: ChatRequest, principal: Principal) -> ChatRequest:
    """The request in its team's class, or in the one that its service tier asks for.

    ApiError 400 where its team may not ask for that. What nobody waits for stays so.
    """
    section, asked = principal.policy.scheduling, request.service_tier
    priority = _PRIORITIES[section.priority]
    if asked == "priority":
        if not section.allow_priority:
            message = (
                "Invalid 'service_tier': this key may not ask for 'priority'. Expected 'auto', 'default' or 'flex'."
            )
            raise invalid(message, "service_tier", "unsupported_value")
        priority = "interactive"
    elif asked == "flex":
        priority = "background"
    elif asked == "default" and priority == "interactive":
        priority = "foreground"
    return request if request.priority in (priority, "background") else replace(request, priority=priority)


_PRIORITIES: Mapping[str, Priority] = {"interactive": "interactive", "standard": "foreground", "batch": "background"}


def arm_of(request: ChatRequest, principal: Principal, weights: Mapping[str, float]) -> str:
    """The model of a conversation in an experiment: each as often as its weight, and one conversation always the same.

    A conversation is known by its session, else by its end user, else by how it begins.
    """
    first = next((m.content for m in request.messages if m.role == "user" and m.content), "")
    who = request.session or request.user or first or str(request.prompt)
    digest = hashlib.blake2b(f"{principal.team}\n{who}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    point = int.from_bytes(digest) / 2**64 * sum(weights.values())
    for name, weight in weights.items():
        point -= weight
        if point < 0:
            return name
    return name
