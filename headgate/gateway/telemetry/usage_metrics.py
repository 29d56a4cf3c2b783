"""What teams used, as the ledger has it. Teams, models and causes are few: users and keys are in the ledger only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.gateway.telemetry.tally import Count, Counter

if TYPE_CHECKING:
    from headgate.gateway.request import Usage
    from headgate.gateway.teams.budgets import Share
    from headgate.gateway.teams.ledger import Ledger
    from headgate.gateway.teams.ledger_file import Entry


class UsageMetrics:
    """Fed by the accounts and by admission."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """`registry`: of the server; None: one of its own."""
        self._registry = CollectorRegistry() if registry is None else registry
        labels = ["team", "model", "cause"]
        self._requests = self._counter("headgate_usage_requests", "Answers by cause.", labels)
        self._tokens = self._counter(
            "headgate_usage_tokens",
            "Tokens by cause: prompt and completion, and prompt tokens that were cached.",
            [*labels, "kind"],
        )
        self._hits: dict[tuple[str, str, str], tuple[Count, Count, Count]] = {}
        self._usd = self._counter("headgate_usage_usd", "US dollars.", labels)
        self._device = self._counter("headgate_usage_device_seconds", "Device time.", labels)
        self._refused = Counter(
            "headgate_refused_requests", "Requests beyond a limit or budget.", ["team", "reason"],
            registry=self._registry,
        )  # fmt: skip

    def settled(self, entry: Entry) -> None:
        """A generation's account."""
        labels = (entry.team, entry.model, entry.cause)
        self._requests.add(*labels, by=entry.requests)
        self._tokens.add(*labels, "prompt", by=entry.prompt_tokens)
        self._tokens.add(*labels, "cached", by=entry.cached_tokens)
        self._tokens.add(*labels, "completion", by=entry.completion_tokens)
        self._usd.add(*labels, by=entry.nano_usd / 1e9)
        self._device.add(*labels, by=entry.device_us / 1e6)

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

    def _counter(self, name: str, text: str, labels: list[str]) -> Counter:
        return Counter(name, text, labels, registry=self._registry)

    def watch(self, shares: Callable[[], Mapping[str, Iterable[Share]]], ledger: Callable[[], Ledger | None]) -> None:
        """Publish how budgets and the ledger stand, read at each scrape."""
        self._registry.register(_Standing(shares, ledger))


class _Standing(Collector):
    def __init__(
        self, shares: Callable[[], Mapping[str, Iterable[Share]]], ledger: Callable[[], Ledger | None]
    ) -> None:
        self._shares = shares
        self._ledger = ledger

    def describe(self) -> Iterable[Metric]:
        """Nothing to collect at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """One family per figure."""
        used = GaugeMetricFamily(
            "headgate_budget_used_ratio", "Share of a budget that is spent.", labels=["team", "budget"]
        )
        sums = {
            (unit, what): GaugeMetricFamily(f"headgate_budget_{what}_{unit}", text, labels=["team", "period"])
            for unit in ("usd", "device_seconds")
            for what, text in (
                ("limit", "What a team may spend."),
                ("spent", "What it has spent of that."),
                ("reserved", "What is set aside for requests that are being answered."),
            )
        }
        for team, shares in self._shares().items():
            for share in shares:
                used.add_metric([team, share.bound], share.used)
                period, _, unit = share.bound.partition("_")
                unit = "usd" if unit == "usd" else "device_seconds"
                for what, amount in (("limit", share.limit), ("spent", share.spent), ("reserved", share.reserved)):
                    sums[unit, what].add_metric([team, period], amount)
        yield used
        yield from sums.values()
        ledger = self._ledger()
        if ledger is not None:
            failing = 0 if ledger.failing is None else 1
            yield GaugeMetricFamily("headgate_ledger_failing", "1 while the ledger cannot be written.", value=failing)
            yield GaugeMetricFamily("headgate_ledger_waiting", "Entries to be written.", value=ledger.waiting)
            yield CounterMetricFamily("headgate_ledger_lost", "Entries that found no room to wait.", value=ledger.lost)
