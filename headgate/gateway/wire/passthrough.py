"""Bodies that are passed on to an upstream: what is read of them here, and the model's name that is put in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from headgate.gateway.upstream.endpoints import IMAGE_EDITS, IMAGES, JSON, SPEECH, Endpoint
from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import invalid, one_of, refuse_variants
from headgate.gateway.wire.forms import Part, read_form, write_form
from headgate.gateway.wire.labels import EndUser

_TOKEN_CHARS = 4
"""A token's id counts as a token of a usual length."""
_LONGEST_FIELD = 512
_OURS = ("model", "user", "stream", "n")
"""Fields of forms that are read here."""

ModelName = Annotated[str, Meta(description="The id of a model that serves this, from GET /v1/models.")]
Number = Annotated[int, Meta(ge=1, le=1000)]


class PassedRequest(Struct, kw_only=True):
    """A body of which this is read here. Its other fields are the upstream's, which says what is wrong with them."""

    model: ModelName | None = None
    user: EndUser | None = None
    stream: bool | None = None


class SpeechRequest(PassedRequest, kw_only=True):
    """The body of `POST /v1/audio/speech`, of which this is read here. Its other fields are the upstream's."""

    input: str


class ImageRequest(PassedRequest, kw_only=True):
    """The body of `POST /v1/images/generations`, of which this is read here. Its other fields are the upstream's."""

    n: Number | None = None


class PassedForm(Struct, kw_only=True):
    """A form, of which this is read here. Its other fields, files among them, are the upstream's."""

    model: ModelName
    user: EndUser | None = None
    stream: Literal["true", "false"] | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request that is to be passed on."""

    model: str
    """As its client names it; empty where it does not."""
    user: str | None
    streams: bool
    """Whether its answer is to come as it is made."""
    images: int
    """That are asked for."""
    spoken: int
    """Characters that are to be spoken."""
    read: int
    """Characters of the texts that tokens are counted of."""
    _fields: dict[str, Raw] | Sequence[Part]

    @property
    def form(self) -> bytes | None:
        """Equal for forms that say the same: each time they are sent they have another boundary. None of JSON."""
        if isinstance(self._fields, dict):
            return None
        digest = blake2b(digest_size=16)
        for part in self._fields:
            digest.update(f"{part.name!r} {part.filename!r} {part.kind} {len(part.value)}\n".encode())
            digest.update(part.value)
        return digest.digest()

    def body(self, model: str) -> tuple[str, list[bytes | memoryview]]:
        """Content type and pieces of the body, with the upstream's own name of the model and no end user."""
        if isinstance(self._fields, dict):
            named = {**self._fields, "model": Raw(msgspec.json.encode(model))}
            named.pop("user", None)
            return JSON, [msgspec.json.encode(named)]
        kept = [part for part in self._fields if part.name not in ("model", "user")]
        return write_form([Part("model", memoryview(model.encode())), *kept])


def read_passed(endpoint: Endpoint, content_type: str, body: bytes) -> Wanted:
    """What is to be known of a request's body; ApiError 400 where that cannot be read."""
    return _read_form(endpoint, content_type, body) if endpoint.form else _read_json(endpoint, body)


def _read_json(endpoint: Endpoint, body: bytes) -> Wanted:
    kind = SpeechRequest if endpoint is SPEECH else ImageRequest if endpoint is IMAGES else PassedRequest
    wire = decode(body, kind)
    # Speech comes as it is made, whatever it comes as.
    streams = wire.stream is True or isinstance(wire, SpeechRequest)
    images = (wire.n or 1) if isinstance(wire, ImageRequest) else 0
    spoken = len(wire.input) if isinstance(wire, SpeechRequest) else 0
    read = _chars(msgspec.json.decode(body)) if endpoint.reads else 0
    fields = msgspec.json.decode(body, type=dict[str, Raw])
    refuse_variants(fields, kind.__struct_fields__)
    return Wanted(wire.model or "", wire.user, streams, images, spoken, read, fields)


def _read_form(endpoint: Endpoint, content_type: str, body: bytes) -> Wanted:
    parts = read_form(content_type, body)
    given: dict[str, str] = {}
    for part in parts:
        if part.name not in _OURS:
            continue
        if part.name in given or part.filename is not None:
            message = f"The form field '{part.name}' is expected once, and as text."
            raise invalid(message, part.name, "invalid_value")
        if len(part.value) > _LONGEST_FIELD:
            message = f"Invalid '{part.name}': expected at most {_LONGEST_FIELD} bytes."
            raise invalid(message, part.name, "string_above_max_length")
        given[part.name] = part.text
    streams = one_of("stream", given.get("stream", "false").lower(), ("true", "false")) == "true"
    images = _number(given.get("n", "1")) if endpoint is IMAGE_EDITS else 0
    return Wanted(given.get("model", ""), given.get("user"), streams, images, 0, 0, parts)


def _number(given: str) -> int:
    if not given.isascii() or not given.isdigit() or len(given) > 4 or not 1 <= int(given) <= 1000:
        raise invalid(f"Invalid 'n': '{given[:80]}'. Expected a whole number from 1 to 1000.", "n", "invalid_value")
    return int(given)


def _chars(body: dict[str, Any]) -> int:
    """Of all texts within a body but those that are read here; pictures and the like, written as URLs, are none."""
    left: list[Any] = [value for name, value in body.items() if name not in _OURS]
    size = 0
    while left:
        value = left.pop()
        if isinstance(value, str):
            size += 0 if value.startswith("data:") else len(value)
        elif isinstance(value, list) and value and type(value[0]) is int:
            # There may be millions of ids: one by one they would hold up everybody.
            size += list(map(type, value)).count(int) * _TOKEN_CHARS
            left += [inner for inner in value if type(inner) is not int]
        elif isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            left += value.values()
        elif isinstance(value, int) and not isinstance(value, bool):
            size += _TOKEN_CHARS
    return size
