"""What the attempts at one request are billed for together: as much as the largest of them, and no more.

An answer that did not reach its client whole is billed for what was computed of it. Asked for again it is made anew,
and billed for what goes beyond that: in tokens, device time and money, each by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from headgate.gateway.teams.ledger_file import Entry


class Counts:
    """Prompt and answer tokens, device time and money."""

    __slots__ = ("completion", "device_us", "nano_usd", "prompt")

    def __init__(self) -> None:
        self.prompt = self.completion = self.device_us = self.nano_usd = 0

    def __iter__(self) -> Iterator[int]:
        yield from (self.prompt, self.completion, self.device_us, self.nano_usd)

    def add(self, prompt: int, completion: int, device_us: int, nano_usd: int) -> None:
        """Count more."""
        self.prompt += prompt
        self.completion += completion
        self.device_us += device_us
        self.nano_usd += nano_usd


class Tab:
    """Of one request, however often it is sent."""

    __slots__ = ("_settled", "_unsettled", "billed", "until", "used")

    def __init__(self) -> None:
        self.billed = Counts()
        self.used = False
        """Whether something was set aside for it."""
        self.until: float | None = None
        """When it is closed; None while no attempt was left."""
        self._unsettled = 0
        self._settled: Callable[[], None] | None = None

    def begin(self) -> None:
        """Something is set aside for it."""
        self.used = True
        self._unsettled += 1

    def end(self) -> None:
        """That was settled."""
        self._unsettled -= 1
        if not self._unsettled and self._settled is not None:
            settled, self._settled = self._settled, None
            settled()

    def close(self) -> None:
        """What is made from now on is billed in full."""
        self.billed = Counts()

    def when_settled(self, call: Callable[[], None]) -> None:
        """Call when nothing is set aside for it: now, or then."""
        if self._unsettled:
            self._settled = call
        else:
            call()


class Attempt:
    """The request, sent once. Its generations may be several: an answer that did not stand counts too."""

    __slots__ = ("_came_to", "tab")

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self._came_to = Counts()

    def bill(self, entry: Entry) -> tuple[Entry, Entry | None]:
        """The account of one more generation: what of it is billed, and its tokens that were billed before."""
        billed, came_to = self.tab.billed, self._came_to
        came_to.add(entry.prompt_tokens, entry.completion_tokens, entry.device_us, entry.nano_usd)
        prompt, completion = came_to.prompt - billed.prompt, came_to.completion - billed.completion
        device_us, nano_usd = came_to.device_us - billed.device_us, came_to.nano_usd - billed.nano_usd
        beyond = max(prompt, 0), max(completion, 0), max(device_us, 0), max(nano_usd, 0)
        billed.add(*beyond)
        if beyond == (entry.prompt_tokens, entry.completion_tokens, entry.device_us, entry.nano_usd):
            return entry, None
        own = replace(
            entry,
            prompt_tokens=beyond[0],
            cached_tokens=min(entry.cached_tokens, beyond[0]),
            completion_tokens=beyond[1],
            device_us=beyond[2],
            nano_usd=beyond[3],
            drafted_tokens=min(entry.drafted_tokens, beyond[1]),
        )
        # The request itself is counted with what it is billed for.
        before = replace(
            entry,
            cause="retried",
            requests=0,
            prompt_tokens=entry.prompt_tokens - own.prompt_tokens,
            cached_tokens=entry.cached_tokens - own.cached_tokens,
            completion_tokens=entry.completion_tokens - own.completion_tokens,
            device_us=0,
            nano_usd=0,
            drafted_tokens=entry.drafted_tokens - own.drafted_tokens,
        )
        return own, before if before.prompt_tokens or before.completion_tokens else None
