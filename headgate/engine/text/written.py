"""What grammars of answers are made of: JSON by a schema, and texts as they stand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]
_WRITTEN = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as models write it on one line: free white space would let a model write it for ever."""


def literal(text: str) -> str:
    """Just this text."""
    return json.dumps(text, ensure_ascii=False) if text else ""


def json_value(schema: Schema) -> str:
    """What follows `%json` in a rule of the JSON values of a schema."""
    return json.dumps({**schema, "x-guidance": _WRITTEN}, ensure_ascii=False)
