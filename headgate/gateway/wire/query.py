"""The part of a URL behind the question mark: known names once each, or ApiError 400."""

from __future__ import annotations

from collections.abc import Mapping

from multidict import MultiMapping

from headgate.gateway.wire.decode import nearest
from headgate.gateway.wire.errors import invalid


def read_query(query: MultiMapping[str], known: tuple[str, ...]) -> Mapping[str, str]:
    """The values by name; ApiError 400 for a name that is not known, or given twice."""
    for name in query:
        if name not in known:
            message = f"Unknown query parameter: '{name[:80]}'.{nearest(name, list(known))}"
            raise invalid(message, name[:80], "unknown_parameter")
        if len(query.getall(name)) > 1:
            raise invalid(f"The query parameter '{name}' is given more than once.", name, "invalid_value")
    return dict(query)


def page_size(given: str | None, default: int, most: int) -> int:
    """The value of `limit`; ApiError 400 unless it is between 1 and `most`."""
    if given is None:
        return default
    if not (given.isascii() and given.isdigit()) or not 1 <= int(given[:9]) <= most or len(given) > 9:
        message = f"Invalid 'limit': '{given[:80]}'. Expected an integer from 1 to {most}."
        raise invalid(message, "limit", "invalid_value")
    return int(given)
