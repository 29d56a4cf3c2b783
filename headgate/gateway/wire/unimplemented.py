"""Parameters of OpenAI's API that are not implemented, and the values at which they change nothing.

Such a parameter is accepted at its neutral values and refused with `unsupported_parameter` at any other, so that a
client never believes something was obeyed that was dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from headgate.gateway.wire.errors import unsupported

Neutral = Mapping[str, tuple[Any, ...]]

CHAT_NEUTRAL: Neutral = {
    "audio": (None,),
    "function_call": (None, "none", "auto"),
    "functions": (None, []),
    "modalities": (None, ["text"]),
    "moderation": (None,),
    "prompt_cache_options": (None, {"mode": "implicit"}),
    "prompt_cache_retention": (None, "in_memory"),
    "store": (None, False),
    "verbosity": (None, "medium"),
    "web_search_options": (None,),
}

COMPLETION_NEUTRAL: Neutral = {
    "suffix": (None, ""),
}


def changes(wire: Struct, neutral: Neutral) -> str | None:
    """The first parameter of the table that is given at a value which would change the answer."""
    for name, accepted in neutral.items():
        value = getattr(wire, name)
        # `False == 0` in Python: compare the types as well.
        if value is not UNSET and not any(type(value) is type(a) and value == a for a in accepted):
            return name
    return None


def refuse_unsupported(wire: Struct, neutral: Neutral) -> None:
    """ApiError 400 for the first parameter of the table that is given at a value which would change the answer."""
    name = changes(wire, neutral)
    if name is not None:
        others = [msgspec.json.encode(a).decode() for a in neutral[name] if a is not None]
        hint = f" Leave it out or give {' or '.join(others)}." if others else " Leave it out."
        raise unsupported(name, f"'{name}' is not supported by this server at the given value.{hint}")
