"""Which tokenizer a name on the wire leads to."""

from __future__ import annotations

from headgate.gateway.local.destination import LocalDestination
from headgate.gateway.routing.routes import AUTO, Routes
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.model_names import model_name
from headgate.gateway.wire.errors import invalid


def reader(routes: Routes, name: str, principal: Principal) -> LocalDestination:
    """The model that reads texts for a name, which may be empty where the team has a default.

    ApiError 404 and 403 as for a chat; 400 without a name, and where it may lead to models that read texts differently.
    """
    name = model_name(name, principal)
    found = routes.candidates(name, principal)
    if name != AUTO:
        found = [d for d in found if routes.tier(d.id) == name] or found
    local = [d for d in found if isinstance(d, LocalDestination)]
    if not local:
        raise invalid(f"The tokenizer of the model '{name}' is not on this server.", "model", "no_tokenizer")
    if len({d.model.info.text_revision for d in local}) > 1:
        accepted = ", ".join(d.id for d in local)
        message = f"The model '{name}' may lead to models with different tokenizers. Name one of: {accepted}."
        raise invalid(message, "model", "ambiguous_tokenizer")
    return local[0]
