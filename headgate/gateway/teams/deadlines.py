"""How long a client waits for its answer to begin, as its headers say.

Who would still be in a queue when his client gives up is told so at once, and who gave up is taken out of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.gateway.wire.errors import invalid

if TYPE_CHECKING:
    from multidict import MultiMapping

TIMEOUT_MS = "x-headgate-timeout-ms"
_MS = re.compile(r"[1-9]\d{0,8}", re.ASCII)
_OFFICIAL = ("x-stainless-read-timeout", "x-stainless-timeout")
_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Deadline:
    """Seconds from a request's arrival within which its answer has to begin."""

    seconds: float
    streams: bool
    """Whether it is for streams too. The official clients' is not: a comment now and then keeps them waiting."""


def deadline_of(headers: MultiMapping[str]) -> Deadline | None:
    """What `x-headgate-timeout-ms` says, else what the official clients say of themselves.

    ApiError 400 where the former is no number of milliseconds; of the latter what cannot be read says nothing.
    """
    given = headers.get(TIMEOUT_MS)
    if given is not None:
        if not _MS.fullmatch(given.strip()):
            message = (
                f"Invalid '{TIMEOUT_MS}': '{given[:80]}'. Expected whole milliseconds, from 1 to 999999999, within "
                "which the answer has to begin."
            )
            raise invalid(message, TIMEOUT_MS, "invalid_value")
        return Deadline(int(given) / 1e3, streams=True)
    for name in _OFFICIAL:
        said = headers.get(name)
        if said is not None and _SECONDS.fullmatch(said) and float(said) > 0:
            return Deadline(float(said), streams=False)
    return None
