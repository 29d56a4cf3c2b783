"""Fields that nobody here knows, taken out of a body so that another server can be sent them."""

from __future__ import annotations

import msgspec

from headgate.gateway.wire.decode import T, decode
from headgate.gateway.wire.errors import ApiError
from headgate.gateway.wire.unimplemented import Neutral, changes

Unknown = tuple[tuple[str, str], ...]
"""Names, and their values as JSON."""

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_REFUSALS = ("unknown_parameter", "unsupported_parameter")


def decode_open(body: bytes, kind: type[T], neutral: Neutral) -> tuple[T, Unknown]:
    """The typed request in `body`, and what it has besides: unknown fields, and known ones not implemented.

    ApiError 400 as `decode`; what is unknown within a field that is known is refused.
    """
    try:
        wire = decode(body, kind)
        if not changes(wire, neutral):
            return wire, ()
    except ApiError as error:
        if error.code not in _REFUSALS:
            raise
    fields = _OBJECT.decode(body)
    unknown = {name: raw for name, raw in fields.items() if name not in kind.__struct_fields__ or name in neutral}
    known = {name: raw for name, raw in fields.items() if name not in unknown}
    wire = decode(msgspec.json.encode(known), kind)
    return wire, tuple((name, bytes(raw).decode()) for name, raw in unknown.items())
