"""The adapters of a lane as they come and go: what a name means, and who still runs with one that is gone.

A name is of one adapter at a time. One that is taken away, or that another has taken the name of, keeps its number for
those who were on their way to it, until nobody computes with it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class LaneAdapters:
    """Names to numbers. All of it belongs to the step thread, but for what says otherwise.

    Attributes:
        left: called where nobody computes any more with one that is gone.
    """

    _revisions: dict[str, str] = field(default_factory=dict)
    """By name: what changes when its files do."""
    _numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    """By name and revision, those that are gone too."""
    _taken: set[int] = field(default_factory=set)
    """Numbers that are not free."""
    left: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, revisions: Mapping[str, str]) -> LaneAdapters:
        """Adapters in the order of their numbers from 1 on."""
        numbers = {(name, revision): number for number, (name, revision) in enumerate(revisions.items(), 1)}
        return cls(dict(revisions), numbers, {*numbers.values()})

    @property
    def names(self) -> Collection[str]:
        """Of those that can be asked for; may be asked from another thread."""
        return tuple(self._revisions)

    @property
    def numbers(self) -> set[int]:
        """Of those that can be asked for."""
        return {self._numbers[each] for each in self._revisions.items()}

    @property
    def leaving(self) -> bool:
        """Whether some are gone that still have a number."""
        return len(self._taken) > len(self._revisions)

    def revision(self, name: str, revision: str = "") -> str:
        """The one that is meant, where that is not said the name's own; empty for the lane's own model. May be asked
        from another thread.
        """
        return revision or self._revisions.get(name, "")

    def number(self, name: str, revision: str = "") -> int | None:
        """The number of an adapter; None where there is none. May be asked from another thread."""
        return self._numbers.get((name, self.revision(name, revision)))

    def put(self, name: str, revision: str, number: int) -> None:
        """From now on the name is this one's."""
        self._revisions[name] = revision
        self._numbers[name, revision] = number
        self._taken.add(number)

    def drop(self, name: str) -> None:
        """From now on the name is nobody's."""
        self._revisions.pop(name, None)

    def forget(self, numbers: Collection[int]) -> None:
        """All but these numbers are free."""
        self._numbers = {who: number for who, number in self._numbers.items() if number in numbers}
        self._taken.intersection_update(numbers)
