"""Stop strings in text that comes in pieces."""

from __future__ import annotations


class StopMatcher:
    """Passes text on up to the first stop string, and holds back an ending that could still become one.

    The first stop string is the one that is complete first, since generation ends there; of several complete at the
    same character the longest counts. That does not depend on how the text is cut into pieces.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        """Look for any of `stops`.

        Raises:
            ValueError: a stop string is empty, which every text would match.
        """
        if "" in stops:
            raise ValueError("stop contains an empty string; non-empty strings are accepted")
        self._stops = stops
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self._stopped = False
        self.matched: str | None = None
        """The stop string that was found."""

    def push(self, text: str) -> tuple[str, bool]:
        """Take in text.

        Returns:
            the text that is certainly before any stop string, and whether a stop string has been found. After that
            everything pushed is dropped.
        """
        if self._stopped:
            return "", True
        if not self._stops or not text:
            return text, False
        text = self._held + text
        matches = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if matches:
            self._stopped, self._held = True, ""
            end, start = min(matches)
            self.matched = text[start:end]
            return text[:start], True
        held_from = self._first_open_match(text)
        self._held = text[held_from:]
        return text[:held_from], False

    def flush(self) -> str:
        """What was held back, when no more text will come."""
        held, self._held = self._held, ""
        return held

    def _first_open_match(self, text: str) -> int:
        """Where the longest ending begins that is the beginning of a stop string; len(text) if there is none."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            ending = text[start:]
            if any(stop.startswith(ending) for stop in self._stops):
                return start
        return len(text)
