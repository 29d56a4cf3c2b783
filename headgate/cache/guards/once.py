"""A property that is found when it is first asked for, and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, overload

Owner = TypeVar("Owner")
Value = TypeVar("Value")


class once(Generic[Owner, Value]):  # noqa: N801 - read as a decorator
    """As `functools.cached_property`, without the lock that it takes before Python 3.12: of two dozen that a pair of
    texts asks for, the locks take longer than most of what is found. Found twice by two threads it is the same."""

    def __init__(self, find: Callable[[Owner], Value]) -> None:
        self._find = find
        self._name = find.__name__
        self.__doc__ = find.__doc__

    @overload
    def __get__(self, seen: None, owner: type[Owner]) -> once[Owner, Value]: ...
    @overload
    def __get__(self, seen: Owner, owner: type[Owner]) -> Value: ...
    def __get__(self, seen: Owner | None, owner: type[Owner]) -> Value | once[Owner, Value]:
        if seen is None:
            return self
        value = seen.__dict__[self._name] = self._find(seen)
        return value
