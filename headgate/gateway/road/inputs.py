"""Who takes what a request has beside text, and what is said where nobody does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from headgate.gateway.road.attachments import Attachment, Input
from headgate.gateway.road.destinations import Destination
from headgate.gateway.road.request import ChatRequest
from headgate.gateway.wire.errors import ApiError, unsupported
from headgate.routing.types import Need

_NEEDS: Mapping[Input, Need] = {"image": "vision", "audio": "audio", "file": "files"}
_WORDS: Mapping[Need, str] = {
    "vision": "pictures",
    "audio": "sound",
    "files": "files",
    "vision_urls": "pictures by an http(s) URL (send a data URL)",
}
TEXT_ALONE: frozenset[Need] = frozenset(_WORDS)
"""What a model lacks that takes nothing but text, as those of this process."""


def lacking(inputs: Collection[Input], *, urls: bool) -> frozenset[Need]:
    """What a model lacks that takes these kinds beside text; `urls`: whether its server may fetch pictures."""
    return TEXT_ALONE - {_NEEDS[kind] for kind in inputs} - ({"vision_urls"} if urls else set())


def inputs_of(request: ChatRequest) -> frozenset[Need]:
    """What a destination must take for a request, beside text."""
    return frozenset(need for attachment in request.attachments for need in _needs(attachment))


def takes(destination: Destination, request: ChatRequest) -> bool:
    """Whether a destination takes all that a request has."""
    return not request.attachments or not inputs_of(request) & destination.lacks


def refuse_inputs(request: ChatRequest, model: str, lacks: frozenset[Need]) -> None:
    """ApiError 400 by its place for the first of what a request has beside text that a model does not take."""
    if (found := _first(request, lacks)) is not None:
        raise _refusal(*found, f"the model '{model}'", "takes no")


def refuse_untaken(request: ChatRequest, candidates: Sequence[Destination], known: Sequence[Destination]) -> None:
    """ApiError 400 where none of the candidates takes all that a request has; it names those of `known` that would."""
    needs = inputs_of(request)
    if any(not needs & candidate.lacks for candidate in candidates):
        return
    others = [f"'{other.id}'" for other in known if not needs & other.lacks]
    rest = f"Models that do: {', '.join(others)}." if others else "No model that you may ask does."
    alone = candidates[0].id if len(candidates) == 1 else ""
    found = _first(request, frozenset.intersection(*(candidate.lacks for candidate in candidates)))
    if found is not None:
        who = f"the model '{alone}'" if alone else f"no model that '{request.model}' may lead to"
        raise _refusal(*found, who, "takes no" if alone else "takes", rest)
    attachment = request.attachments[0]
    what = ", ".join(_WORDS[need].partition(" (")[0] for need in sorted(needs))
    message = f"'{attachment.place}': no model that '{request.model}' may lead to takes all of {what}. {rest}"
    raise unsupported(attachment.place, message)


def _needs(attachment: Attachment) -> tuple[Need, ...]:
    need = _NEEDS[attachment.kind]
    return (need, "vision_urls") if attachment.remote else (need,)


def _first(request: ChatRequest, lacks: frozenset[Need]) -> tuple[Attachment, Need] | None:
    pairs = ((attachment, need) for attachment in request.attachments for need in _needs(attachment))
    return next((pair for pair in pairs if pair[1] in lacks), None)


def _refusal(attachment: Attachment, need: Need, who: str, verb: str, rest: str = "") -> ApiError:
    place = attachment.place
    return unsupported(place, f"'{place}': {who} {verb} {_WORDS[need]}. {rest}".rstrip())
