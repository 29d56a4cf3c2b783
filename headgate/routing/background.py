"""What clients send on their own account: titles, tags, follow-up questions, completions while typing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

import yaml

from headgate.routing.types import RouteFeatures

_HEAD_CHARS = 700
_TAIL_CHARS = 500
_SYSTEM_CHARS = 1200


class BackgroundCalls:
    """Tells requests that a client makes for itself from those a person makes for an answer."""

    def __init__(self, words: Mapping[str, str], patterns: Sequence[str]) -> None:
        """Compile the patterns, in which `<NAME>` stands for one of the words."""
        self._patterns = []
        for pattern in patterns:
            for name, alternatives in words.items():
                pattern = pattern.replace(f"<{name}>", alternatives)
            self._patterns.append(re.compile(pattern, re.IGNORECASE))

    @classmethod
    def load(cls) -> BackgroundCalls:
        """The patterns that ship."""
        path = files("headgate.routing") / "data" / "background.yaml"
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        return cls(data["words"], data["patterns"])

    def includes(self, features: RouteFeatures) -> bool:
        """Whether a request is one.

        Told from the beginning and the end of the last user text and the beginning of the system text, for in between
        lies the conversation that is to be named. A request that brings tools is none.
        """
        if features.has_tools:
            return False
        text = features.text
        parts = [text] if len(text) <= _HEAD_CHARS + _TAIL_CHARS else [text[:_HEAD_CHARS], text[-_TAIL_CHARS:]]
        if features.system:
            parts.append(features.system[:_SYSTEM_CHARS])
        return any(pattern.search(part) for part in parts for pattern in self._patterns)
