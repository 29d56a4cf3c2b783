"""`/admin/adapters`: the wire types."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

_Usd = Annotated[float, Meta(ge=0)]


class AdapterPrice(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What its tokens cost, in US dollars a million."""

    usd_per_million_prompt_tokens: _Usd = 0.0
    usd_per_million_completion_tokens: _Usd = 0.0
    usd_per_million_cached_tokens: _Usd | None = None


class NewAdapter(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An adapter to serve, as in `models[].adapters` of the configuration."""

    model: Annotated[str, Meta(description="The id of the model of this server that it is of.")]
    id: Annotated[str, Meta(description="The name clients will ask for.")]
    path: Annotated[str, Meta(min_length=1, description="A folder on the server with PEFT's files, or a hub id.")]
    tier: Literal["small", "large"] | None = None
    lacks: list[Literal["tools", "vision", "json"]] | None = None
    price: AdapterPrice | None = None
    replace: Annotated[bool, Meta(description="Whether one of this id makes room for it.")] = False


class AdapterChoice(Struct, forbid_unknown_fields=True):
    """Which adapter is served no more."""

    id: str


class AdapterState(Struct):
    """An adapter of this server."""

    id: str
    model: str
    path: str
    tier: str | None
    state: Literal["served", "failed", "removed"]
    why: str
    """It failed at the start."""
    source: Literal["configuration", "added"]
    lasts: bool = True
    """Whether the next start knows of it as this one does."""


class AdapterStates(Struct):
    """All of them."""

    adapters: list[AdapterState]
