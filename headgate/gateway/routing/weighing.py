"""What the router weighs: each destination with its tier, how it stands now, and what an answer costs there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from headgate.gateway.configuration.models import ModelSection
from headgate.gateway.road.destinations import Destination, Live, Prepared
from headgate.gateway.road.request import ChatRequest
from headgate.gateway.settings import Settings
from headgate.gateway.teams.keys import Principal
from headgate.gateway.upstream.sections import UpstreamSection
from headgate.gateway.wire.errors import ApiError
from headgate.routing.price import AnswerLengths, Neighbour, Signals, Tariff, price
from headgate.routing.types import Destination as Candidate
from headgate.routing.types import Tier


class Weighing:
    """Turns destinations into the router's candidates."""

    def __init__(
        self, settings: Settings, tiers: Mapping[str, Tier], estimated: Collection[str], up: Callable[[str], bool]
    ) -> None:
        """By the prices of these settings.

        Args:
            settings: prices, and the signals that count in them.
            tiers: tier by id, for the models that have one; may change.
            estimated: ids of the models that estimates of quality are of.
            up: whether a model is asked where there are others.
        """
        self._settings = settings
        self._tiers = tiers
        self._estimated = estimated
        self._up = up
        signals = settings.routing.price.signals
        self._signals = Signals("queue" in signals, "kv" in signals)
        self._lengths = AnswerLengths()
        self._tariffs = {section.id: _tariff(section, settings) for section in settings.served}

    def add(self, section: ModelSection) -> None:
        """A model came, or took another's name: its prices hold."""
        self._tariffs[section.id] = _tariff(section, self._settings)

    def learn(self, task: str, tokens: int) -> None:
        """An answer to a task of this class had so many tokens."""
        self._lengths.learn(task, tokens)

    def weigh(
        self,
        request: ChatRequest,
        task: str,
        candidates: Sequence[Destination],
        others: Mapping[str, Destination],
        prepared: Mapping[str, Prepared],
        refusals: Mapping[str, ApiError],
        principal: Principal,
    ) -> list[Candidate]:
        """The candidates for a request of a task class, in their order.

        Args:
            request: what is asked.
            task: its class.
            candidates: where it may go.
            others: all destinations by id: those on a candidate's device are its neighbours.
            prepared: the request as each candidate takes it.
            refusals: of those that do not.
            principal: who asks.
        """
        by_id = {**others, **{d.id: d for d in candidates}}
        live = {name: destination.live() for name, destination in by_id.items()}
        expected = self._lengths.expected(task, request.max_tokens)
        found = []
        for destination in candidates:
            name = destination.id
            stands, refusal = live[name], refusals.get(name)
            refused = "" if refusal is None else "context" if refusal.code == "context_length_exceeded" else "refused"
            cost = None
            if stands is not None and name in prepared:
                cost = price(
                    prompt_tokens=prepared[name].prompt_tokens,
                    resident_tokens=destination.resident(prepared[name], principal) if self._signals.kv else 0,
                    output_tokens=expected * request.n,
                    rates=stands.rates,
                    load=stands.load,
                    neighbours=_neighbours(name, stands, live),
                    tariff=self._tariffs.get(name, Tariff()),
                    signals=self._signals,
                    wake_s=stands.wake_s,
                )
            found.append(
                Candidate(
                    name,
                    # A model without a tier is only asked where no other is: it may then be taken for a large one.
                    self._tiers.get(name, "large"),
                    estimated=name in self._estimated,
                    ready=stands is None or stands.ready,
                    down=not self._up(name),
                    queue_depth=0 if stands is None or not self._signals.queue else stands.load.waiting,
                    refusal=refused,
                    context_length=destination.facts.context_length,
                    lacks=destination.lacks,
                    price=cost,
                )
            )
        return found


def _neighbours(name: str, stands: Live, live: Mapping[str, Live | None]) -> tuple[Neighbour, ...]:
    # What shares a lane has one load, and is one neighbour.
    lanes = {o.lane or other: o for other, o in live.items() if o is not None and o.device == stands.device}
    return tuple(Neighbour(o.load, o.rates) for lane, o in lanes.items() if lane != (stands.lane or name))


def _tariff(model: ModelSection | UpstreamSection, settings: Settings) -> Tariff:
    return Tariff(
        model.price.usd_per_million_prompt_tokens / 1e6,
        model.price.usd_per_million_completion_tokens / 1e6,
        0.0 if isinstance(model, UpstreamSection) else settings.engine.usd_per_device_hour / 3600,
        settings.routing.price.usd_per_waited_hour / 3600,
    )
