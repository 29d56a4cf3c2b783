"""What every generation is billed for: budgets, ledger, metrics and the reply's cost are all told of it here, once.

So they agree to the token. An answer that fails by our fault costs nothing, whoever made it; one that its client left
costs what was computed of it by then.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from headgate.gateway.teams.budgets import Budgets, Hold, Over, Standing
from headgate.gateway.teams.costs import NOTHING, Prices
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.ledger import Ledger
from headgate.gateway.teams.ledger_file import Cause, Entry
from headgate.gateway.teams.tabs import Attempt
from headgate.gateway.telemetry.metrics.usage import UsageMetrics

if TYPE_CHECKING:
    from headgate.gateway.road.request import ChatRequest, Usage


class Payer(msgspec.Struct, frozen=True):
    """Who asks, and for whom."""

    principal: Principal
    request_id: str
    user: str = ""
    tags: str = ""


class Bill:
    """One generation's. It is settled once; settling again does nothing."""

    def __init__(
        self, accounts: Accounts, entry: Entry, hold: Hold, number: int | None, attempt: Attempt | None
    ) -> None:
        self._accounts = accounts
        self._attempt = attempt
        self._entry = entry
        self._hold = hold
        self._number = number
        self.cost = NOTHING

    def drop(self) -> None:
        """It costs nothing."""
        self._accounts.budgets.settle(self._hold, NOTHING)
        if self._number is not None and self._accounts.ledger is not None:
            self._accounts.ledger.settle(self._number, None)
        if self._attempt is not None:
            self._attempt.tab.end()

    def settle(self, usage: Usage, device_s: float, cause: Cause) -> None:
        """It has ended with this; the ledger has it soon."""
        entry, retried = self._settled(usage, device_s, cause)
        if self._number is not None and self._accounts.ledger is not None:
            self._accounts.ledger.settle(self._number, entry, retried)

    async def settled(self, usage: Usage, device_s: float, cause: Cause) -> None:
        """The same; the ledger has it when this returns."""
        entry, retried = self._settled(usage, device_s, cause)
        if self._number is not None and self._accounts.ledger is not None:
            await self._accounts.ledger.settled(self._number, entry, retried)

    def _settled(self, usage: Usage, device_s: float, cause: Cause) -> tuple[Entry, Entry | None]:
        entry, accounts = self._entry, self._accounts
        cost = accounts.prices.of(
            entry.model,
            usage.prompt_tokens,
            usage.completion_tokens,
            device_s,
            usage.cached_tokens,
            usage.beside_nano_usd,
        )
        entry = replace(
            entry,
            cause=cause,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
            device_us=cost.device_us,
            nano_usd=cost.nano_usd,
            drafted_tokens=usage.drafted_tokens,
        )
        retried = None
        if self._attempt is not None:
            entry, retried = self._attempt.bill(entry)
            self._attempt.tab.end()
            if retried is not None:
                accounts.metrics.settled(retried)
        self.cost = entry.cost
        accounts.budgets.settle(self._hold, self.cost)
        accounts.metrics.settled(entry)
        return entry, retried


class Accounts:
    """Opens bills. Without a ledger budgets begin anew with the process."""

    def __init__(
        self,
        prices: Prices | None = None,
        metrics: UsageMetrics | None = None,
        budgets: Budgets | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock`: seconds since the epoch."""
        self.prices = Prices() if prices is None else prices
        self.metrics = UsageMetrics() if metrics is None else metrics
        self.budgets = Budgets(clock) if budgets is None else budgets
        self.ledger: Ledger | None = None
        self._clock = clock
        self._minute = (-1, "", "")

    async def open(
        self,
        payer: Payer,
        model: str,
        prompt_tokens: int,
        most_tokens: int,
        device_s: float,
        attempt: Attempt | None = None,
        beside_nano_usd: int = 0,
    ) -> Bill | Over:
        """Set aside what a generation may cost: prompt, longest answer, what the device may take for them, and what is
        paid beside tokens.

        `attempt` is the request's that it is made for, where that may be one of several.
        """
        principal = payer.principal
        cost = self.prices.of(model, prompt_tokens, most_tokens, device_s, beside_nano_usd=beside_nano_usd)
        hold = await self.budgets.take(principal.team, principal.policy.budgets, cost)
        if isinstance(hold, Over):
            return hold
        entry = self._entry(payer, model, hold, prompt_tokens, most_tokens)
        number = None
        if self.ledger is not None:
            try:
                number = await self.ledger.begin(entry)
            except BaseException:
                self.budgets.settle(hold, NOTHING)
                raise
        if attempt is not None:
            attempt.tab.begin()
        return Bill(self, entry, hold, number, attempt)

    def standing(self, principal: Principal) -> Standing:
        """How the budgets of the principal's team stand."""
        return self.budgets.standing(principal.team, principal.policy.budgets)

    def hit(self, payer: Payer, model: str, cause: Cause, usage: Usage) -> None:
        """An answer was served that somebody had computed before."""
        principal = payer.principal
        self.metrics.hit(principal.team, model, cause, usage)
        if self.ledger is None:
            return
        minute, zone = int(self._clock()) // 60 * 60, principal.policy.budgets.timezone
        if self._minute[:2] != (minute, zone):
            self._minute = (minute, zone, self.budgets.day(principal.policy.budgets))
        labels = (
            self._minute[2], minute, principal.team, principal.key_id or "", model, cause, payer.user, payer.tags
        )  # fmt: skip
        self.ledger.hit(labels, usage.prompt_tokens, usage.completion_tokens)

    def shadow(self, payer: Payer, model: str, usage: Usage, device_s: float) -> None:
        """An answer was made to be compared with the one that was given; no budget is charged for it."""
        principal = payer.principal
        cost = self.prices.of(model, usage.prompt_tokens, usage.completion_tokens, device_s)
        hold = Hold(principal.team, self.budgets.day(principal.policy.budgets), cost)
        entry = self._entry(payer, model, hold, usage.prompt_tokens, usage.completion_tokens)
        entry = replace(entry, cause="shadow", cached_tokens=usage.cached_tokens)
        self.metrics.settled(entry)
        if self.ledger is not None:
            self.ledger.note(entry)

    def _entry(self, payer: Payer, model: str, hold: Hold, prompt_tokens: int, most_tokens: int) -> Entry:
        principal = payer.principal
        return Entry(
            hold.day,
            int(self._clock()),
            principal.team,
            principal.key_id or "",
            model,
            "generated",
            payer.user,
            payer.tags,
            payer.request_id,
            prompt_tokens=prompt_tokens,
            completion_tokens=most_tokens,
            device_us=hold.cost.device_us,
            nano_usd=hold.cost.nano_usd,
        )


def payer(principal: Principal, request_id: str, request: ChatRequest) -> Payer:
    """Of a request: what its end user and its metadata say is text that a ledger can hold."""
    user = "" if request.user is None else _text(request.user)
    return Payer(principal, request_id, user, tags(dict(request.metadata)) if request.metadata else "")


def tags(metadata: Mapping[str, str]) -> str:
    """Metadata as the ledger has it: JSON with sorted names."""
    return json.dumps(metadata, sort_keys=True, separators=(",", ":"))


def _text(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
