"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time


def moment(given: str | date) -> datetime:
    """The time that a text of ISO 8601, or what YAML makes of it, means: a day is its beginning, and without a zone it
    is UTC.

    Raises:
        ValueError: it is none.
    """
    found = datetime.fromisoformat(given) if isinstance(given, str) else given
    if not isinstance(found, datetime):
        found = datetime.combine(found, time())
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
