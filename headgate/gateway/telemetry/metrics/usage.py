"""What teams used, as the ledger has it. Teams, models and causes are few: users and keys are in the ledger only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from headgate.gateway.telemetry.metrics.catalogue import Requests, Teams
from headgate.gateway.telemetry.metrics.families import GaugeFamily, Scraped
from headgate.gateway.telemetry.metrics.tally import Count, Counter

if TYPE_CHECKING:
    from headgate.gateway.road.request import Usage
    from headgate.gateway.teams.budgets import Share
    from headgate.gateway.teams.ledger import Ledger
    from headgate.gateway.teams.ledger_file import Entry


@dataclass(frozen=True, slots=True)
class _Series:
    """What a team used of a model for a cause: looking labels up costs more than counting."""

    requests: Count
    prompt: Count
    cached: Count
    completion: Count
    drafted: Count
    usd: Count
    device: Count


class UsageMetrics:
    """Fed by the accounts and by admission."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """`registry`: of the server; None: one of its own."""
        registry = CollectorRegistry() if registry is None else registry
        self._requests = Counter(Teams.REQUESTS, registry)
        self._tokens = Counter(Teams.TOKENS, registry)
        self._hits: dict[tuple[str, str, str], tuple[Count, Count, Count]] = {}
        self._settled: dict[tuple[str, str, str], _Series] = {}
        self._usd = Counter(Teams.USD, registry)
        self._device = Counter(Teams.DEVICE, registry)
        self._refused = Counter(Requests.REFUSED, registry)

    def settled(self, entry: Entry) -> None:
        """A generation's account."""
        labels = (entry.team, entry.model, entry.cause)
        series = self._settled.get(labels)
        if series is None:
            tokens = self._tokens.of
            series = self._settled[labels] = _Series(
                self._requests.of(*labels),
                tokens(*labels, "prompt"),
                tokens(*labels, "cached"),
                tokens(*labels, "completion"),
                tokens(*labels, "drafted"),
                self._usd.of(*labels),
                self._device.of(*labels),
            )
        series.requests.value += entry.requests
        series.prompt.value += entry.prompt_tokens
        series.cached.value += entry.cached_tokens
        series.completion.value += entry.completion_tokens
        series.drafted.value += entry.drafted_tokens
        series.usd.value += entry.nano_usd / 1e9
        series.device.value += entry.device_us / 1e6

    def hit(self, team: str, model: str, cause: str, usage: Usage) -> None:
        """An answer from the cache."""
        labels = (team, model, cause)
        series = self._hits.get(labels)
        if series is None:
            tokens = self._tokens.of
            series = self._requests.of(*labels), tokens(*labels, "prompt"), tokens(*labels, "completion")
            self._hits[labels] = series
        requests, prompt, completion = series
        requests.value += 1
        prompt.value += usage.prompt_tokens
        completion.value += usage.completion_tokens

    def refused(self, team: str, reason: str) -> None:
        """A request was beyond a limit (requests, tokens, concurrency) or a budget (its name)."""
        self._refused.add(team, reason)


_SHARES: Mapping[str, tuple[GaugeFamily, GaugeFamily, GaugeFamily]] = {
    "usd": (Teams.LIMIT_USD, Teams.SPENT_USD, Teams.RESERVED_USD),
    "device_s": (Teams.LIMIT_DEVICE, Teams.SPENT_DEVICE, Teams.RESERVED_DEVICE),
}
"""What a budget's unit is published as: its limit, what is spent and what is reserved."""


class BudgetCollector(Scraped):
    """How budgets and the ledger stand, read at each scrape."""

    families = (
        Teams.BUDGET_USED, *(family for share in _SHARES.values() for family in share),
        Teams.LEDGER_FAILING, Teams.LEDGER_WAITING, Teams.LEDGER_LOST,
    )  # fmt: skip

    def __init__(
        self, shares: Callable[[], Mapping[str, Iterable[Share]]], ledger: Callable[[], Ledger | None]
    ) -> None:
        self._shares = shares
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        """One family per figure."""
        used = Teams.BUDGET_USED.new()
        sums = {unit: [family.new() for family in families] for unit, families in _SHARES.items()}
        for team, shares in self._shares().items():
            for share in shares:
                used.add_metric([team, share.bound], share.used)
                period, _, unit = share.bound.partition("_")
                for family, amount in zip(sums[unit], (share.limit, share.spent, share.reserved), strict=True):
                    family.add_metric([team, period], amount)
        yield used
        for families in sums.values():
            yield from families
        ledger = self._ledger()
        if ledger is not None:
            yield Teams.LEDGER_FAILING.of(0 if ledger.failing is None else 1)
            yield Teams.LEDGER_WAITING.of(ledger.waiting)
            yield Teams.LEDGER_LOST.of(ledger.lost)
