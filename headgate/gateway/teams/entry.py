"""What becomes of a request before it takes the road, by what its team's file says."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from headgate.gateway.request import ChatRequest
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.names import named
from headgate.gateway.teams.prompts import prompted

AUTO = "auto"


def as_team(request: ChatRequest, principal: Principal) -> tuple[ChatRequest, str]:
    """The request as its team has it, and the arm of the team's experiment that it is of; an empty text: of none.

    ApiError 400 where it names no model and the team has no default.
    """
    request = scheduled(named(request, principal), principal)
    weights = principal.policy.experiments.weights
    arm = arm_of(request, principal, weights) if weights and request.model == AUTO else ""
    return prompted(replace(request, model=arm) if arm else request, principal), arm


def scheduled(request: ChatRequest, principal: Principal) -> ChatRequest:
    """The request at its team's service tier, if that is behind its own."""
    behind = principal.policy.scheduling.service_tier == "flex" and request.priority == "foreground"
    return replace(request, priority="background") if behind else request


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
