"""`GET /v1/models`: the wire types."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from headgate.gateway.upstream.endpoints import Serves


class ModelBody(Struct):
    """A model that can be asked, or a name that leaves a choice. What follows `owned_by` extends OpenAI's object."""

    id: str
    created: int
    owned_by: str
    tier: str | None
    context_length: int | None
    """Tokens; null while the model is loading. Of `auto`, `small` and `large`: of the longest among their models."""
    parameters: int | None
    active_parameters: int | None
    dtype: str | None
    task: Literal["generation", "embeddings"] | None
    """null of a model that does neither."""
    serves: list[Serves]
    """What it may be asked for, as `upstreams[].serves` has it."""
    parent: str | None = None
    """The model that an adapter is of."""
    object: Literal["model"] = "model"


class ModelList(Struct):
    """Every model this key may ask."""

    data: list[ModelBody]
    object: Literal["list"] = "list"
