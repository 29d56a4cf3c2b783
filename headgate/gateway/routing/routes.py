"""Names on the wire to destinations: `auto` leaves the choice to us, `small` and `large` name a tier, an id its model.

What the router decides over is gathered here: what the request is (`features`), who asks (`policies`), and how
each destination stands at this moment (`weighing`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from headgate.cache.embedding.embedder import BatchEmbedder
from headgate.cache.embedding.sentence_model import Vector
from headgate.gateway.configuration.models import ModelSection
from headgate.gateway.configuration.routing import BreakerSection, RoutingSection
from headgate.gateway.road.destinations import Destination, Prepared, Read
from headgate.gateway.road.inputs import refuse_untaken
from headgate.gateway.road.plan import Plan
from headgate.gateway.road.request import ChatRequest
from headgate.gateway.routing.features import features_of, hash_of, needs_of, system_of
from headgate.gateway.routing.policies import Cascades, InForce, Policies, uncalibrated
from headgate.gateway.routing.weighing import Weighing
from headgate.gateway.settings import Settings
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.model_names import check_allowed
from headgate.gateway.wire.errors import (
    ApiError,
    adapter_gone,
    model_not_found,
    not_permitted,
    overloaded,
    upstream_down,
)
from headgate.routing.breaker import Breaker, BreakerLimits
from headgate.routing.budget import Claim
from headgate.routing.classes import TaskClassifier
from headgate.routing.core import cores
from headgate.routing.policy import Judgement, Policy, Router
from headgate.routing.session import Sessions, session_key
from headgate.routing.types import Destination as Candidate
from headgate.routing.types import NoneReady, NoRoute, QualityModel, Tier

AUTO = "auto"
POLICIES = (AUTO, "small", "large")
_NEW = Judgement()


class Routes:
    """Every destination, the names it is known by, and the router between them."""

    def __init__(
        self,
        destinations: Sequence[Destination],
        tiers: Mapping[str, Tier],
        classifier: TaskClassifier,
        settings: Settings | None = None,
        *,
        quality: QualityModel | None = None,
        thresholds: Mapping[str, float] | None = None,
        cascades: Cascades | None = None,
        estimated: Collection[str] | None = None,
        secret: bytes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Name the destinations; until `understand` is called tasks are told by their words.

        Args:
            destinations: at least one; ids are unique.
            tiers: tier by id, for the models that have one.
            classifier: tells the task class of a request; `fit` it before, or the first request waits for that.
            settings: policies, prices and limits; None: the defaults.
            quality: tells how well each tier would answer; None: the task class's tier decides.
            thresholds: what its estimates must be above, by their source, for whom the settings say nothing else.
            cascades: the least probability with which small answers stand, of a quantile and a largest loss.
            estimated: ids of the models that its estimates are of; None: all.
            secret: of the hashes of features, up to 64 bytes; None: a random one.
            clock: monotonic seconds.
        """
        settings = Settings() if settings is None else settings
        routing = settings.routing
        self._by_id = {d.id: d for d in destinations}
        self.generation = 0
        """Changes when models come and go."""
        self._tiers = dict(tiers)
        self._hand_overs = {model.id: model.hand_over for model in settings.local}
        self._tasks = classifier.tasks
        self._classifier = classifier
        """Tells tasks by their words."""
        self._quality = quality
        self._estimated = frozenset(self._by_id if estimated is None else estimated)
        self._probes = routing.probe
        self._judges_cores = routing.judge_cores and quality is not None
        self._router = Router(self._tasks, classifier, quality)
        self._secret = secrets.token_bytes(32) if secret is None else secret[:64]
        self._clock = clock
        self._policies = Policies(settings, clock, thresholds or {}, cascades or uncalibrated)
        own = {u.id: u.breaker for u in settings.upstreams}
        # Who takes no chats is left alone as others are: see `passthrough`.
        self._elsewhere = frozenset(own) - frozenset(self._by_id)
        names = (*self._by_id, *(upstream for upstream in own if upstream in self._elsewhere))
        self._breakers = {name: Breaker(_limits(own.get(name) or routing.breaker), clock) for name in names}
        self._sessions = Sessions(routing.sessions.most)
        self._settings = settings
        self._weighing = Weighing(settings, self._tiers, self._estimated, self.up)
        self._embedder: BatchEmbedder | None = None
        self.takeover_s = routing.takeover_s
        # Whatever else there is to know of a request, one that names a model goes there.
        self._named = {d.id: self._naming(d.id) for d in destinations}

    @property
    def destinations(self) -> Mapping[str, Destination]:
        """By id, in the order of the configuration."""
        return self._by_id

    def add(self, destination: Destination, section: ModelSection) -> None:
        """One more destination, an adapter that came, or another in place of the one with its id."""
        name, routing = destination.id, self._settings.routing
        self.generation += 1
        # Others go through what there was.
        self._by_id = {**self._by_id, name: destination}
        self._tiers.pop(name, None)
        if section.tier is not None:
            self._tiers[name] = section.tier
        self._hand_overs[name] = section.hand_over
        self._weighing.add(section)
        self._breakers[name] = Breaker(_limits(routing.breaker), self._clock)
        self._named[name] = self._naming(name)

    def remove(self, name: str) -> None:
        """No request goes there any more; those that do end as they would have."""
        self.generation += 1
        self._by_id = {other: destination for other, destination in self._by_id.items() if other != name}
        for known in (self._tiers, self._hand_overs, self._named):
            known.pop(name, None)

    @property
    def breakers(self) -> Mapping[str, Breaker]:
        """By destination, those that were removed among them: who is still there reports to his."""
        return self._breakers

    async def understand(self, embedder: BatchEmbedder) -> None:
        """From now on tell tasks by meaning: the embedder has been loaded."""
        self._router = Router(self._tasks, await self._classifier.understanding(embedder), self._quality)
        self._embedder = embedder

    def retune(self, routing: RoutingSection) -> None:
        """From the next request on these policies hold; what else the section says holds from a start."""
        self._policies.retune(routing)
        self.takeover_s = routing.takeover_s

    @property
    def watched(self) -> Mapping[str, Breaker]:
        """Breakers of what there is now."""
        return {name: b for name, b in self._breakers.items() if name in self._by_id or name in self._elsewhere}

    def _naming(self, name: str) -> Plan:
        return Plan(self._router.decide(_NEW, name, [Candidate(name, "large")], Policy()), InForce(Policy()))

    def tier(self, model_id: str) -> Tier | None:
        """The configured tier of a model."""
        return self._tiers.get(model_id)

    def hand_over(self, model_id: str) -> str:
        """How an answer of a small model begins that leaves the request to a large one; empty where none does."""
        if self._tiers.get(model_id) != "small":
            return ""
        configured = self._hand_overs.get(model_id)
        return self._by_id[model_id].facts.hand_over if configured is None else configured or ""

    def candidates(self, name: str, principal: Principal | None = None) -> list[Destination]:
        """Where a name may lead; ApiError 404 where it leads nowhere, 403 where the principal may not go there.

        The names of policies may lead to every model with a tier, or to all where none has one.
        """
        allowed = None if principal is None else principal.models
        if name in self._by_id:
            if principal is not None:
                check_allowed(name, principal)
            return [self._by_id[name]]
        if name not in POLICIES or not self._by_id:
            known = [model for model in self._by_id if allowed is None or model in allowed]
            told = ", ".join([*POLICIES, *known]) if self._by_id else "no model, this server takes no chats"
            raise model_not_found(name, told, "chats" if name in self._elsewhere else "")
        found = [d for d in self._by_id.values() if d.id in self._tiers] or list(self._by_id.values())
        return found if allowed is None else [d for d in found if d.id in allowed] or found

    def visible(self, principal: Principal) -> list[Destination]:
        """The models that a principal may ask, in the order of the configuration."""
        return [d for d in self._by_id.values() if principal.models is None or d.id in principal.models]

    def variant(self, name: str, principal: Principal) -> str:
        """Equal for keys of a team for which a name leads to the same answers; empty where the team's policy holds."""
        return self._policies.variant(principal) if name in POLICIES else ""

    def fingerprint(self, model_id: str) -> str:
        """OpenAI's `system_fingerprint`: changes with the weights. ApiError 503 of an adapter that is gone."""
        return fingerprint(self.destination(model_id))

    def destination(self, name: str) -> Destination:
        """The destination of an id that a plan has. ApiError 503 where it was an adapter that is gone by now."""
        found = self._by_id.get(name)
        if found is None:
            raise adapter_gone(name)
        return found

    async def plan(self, request: ChatRequest, vector: Vector | None, principal: Principal, without: str = "") -> Plan:
        """Where to generate and why. `vector` embeds the last user text, where the cache computed it for the team;
        `without` is a model that has failed, which an `auto` is not weighed with.

        Nothing is counted but by `claim`. ApiError 404 where the name leads nowhere, 403 where the principal
        may use no model, 503 where nothing is ready; what every destination refuses in the prompt is refused, and what
        none takes beside text, in an experiment once its model has refused it.
        """
        if request.attachments and not request.arm:
            refuse_untaken(request, self.candidates(request.model, principal), self.visible(principal))
        named = self._named.get(request.model)
        if named is not None:
            return named.because("experiment") if request.arm else named
        text = request.last_user_text or ""
        ends: Vector | None = None
        if request.model == AUTO and self._embedder is not None and text.strip():
            vector, ends = await self._embed(self._embedder, text, vector, principal.team)
        candidates = [d for d in self.candidates(request.model) if d.id != without]
        prepared, refusals = await self._prepare(request, candidates)
        state = await self._probe(prepared, principal) if request.model == AUTO else None
        started = self._clock()
        features = features_of(request, vector, state, ends)
        # What no model takes goes nowhere: to judge megabytes that fit none would hold everybody up for seconds.
        judgement = self._router.judge(features) if request.model == AUTO and prepared else _NEW
        in_force = self._policies.of(principal)
        session = self._session(request, principal)
        try:
            decision = self._router.decide(
                judgement,
                request.model,
                self._weighing.weigh(request, judgement.task, candidates, self._by_id, prepared, refusals, principal),
                in_force.policy,
                needs=needs_of(request),
                incumbent=self._sessions.destination(session) if session else "",
                may_escalate=in_force.may_escalate,
                checkable=request.n == 1,
            )
        except NoneReady as error:
            raise overloaded(f"No model is ready: {error}.") from None
        except NoRoute as error:
            raise not_permitted(f"No model can be used for this request: {error}.") from None
        hashed = hash_of(features, request.model, self._secret)
        return Plan(decision, in_force, prepared, refusals, session, hashed, self._clock() - started, features)

    async def instead(
        self, request: ChatRequest, vector: Vector | None, principal: Principal
    ) -> tuple[ChatRequest, Plan]:
        """What becomes of a request whose experiment's model gives no answer: an `auto` for the others, and its plan.

        ApiError as of `plan`, and where all others refuse the prompt: then there is nobody but the arm.
        """
        left = replace(request, model=AUTO, arm=False)
        plan = await self.plan(left, vector, principal, without=request.model)
        if plan.route.model in plan.refusals:
            raise plan.refusals[plan.route.model]
        return left, plan

    def claim(self, plan: Plan) -> Claim:
        """Count a request as it was planned just now, with nothing awaited since, until `begun` knows better.

        Who gets an answer from nobody drops it.
        """
        budgets = plan.in_force.budgets if plan.decision.requested == AUTO else ()
        return Claim(budgets, large=self._tiers.get(plan.route.model) == "large")

    def begun(self, plan: Plan, claim: Claim, model: str) -> None:
        """A planned request is answered by a model."""
        # Where a conversation had to go, it need not stay.
        if plan.session and model == plan.route.model and not plan.route.reason.startswith("fallback:"):
            self._sessions.keep(plan.session, model)
        claim.settle(large=self._tiers.get(model) == "large")

    def up(self, name: str) -> bool:
        """Whether a model is asked where there are others: it is not left alone, and not known to be down."""
        return name in self._by_id and self._breakers[name].allows and not self._by_id[name].down

    def reachable(self, name: str) -> Destination:
        """The destination of an id. ApiError 503 where it is another server that is known to be down, or gone."""
        destination = self.destination(name)
        if destination.facts.remote and not self.up(name):
            raise upstream_down(name, self._breakers[name].pause_s)
        return destination

    def answered(self, plan: Plan, tokens: int) -> None:
        """A planned request was answered with so many tokens a choice."""
        if plan.decision.requested in POLICIES:
            self._weighing.learn(plan.route.task, tokens)

    async def _prepare(
        self, request: ChatRequest, candidates: Sequence[Destination]
    ) -> tuple[dict[str, Prepared], dict[str, ApiError]]:
        prepared: dict[str, Prepared] = {}
        refusals: dict[str, ApiError] = {}
        read: Read = {}
        for destination in candidates:
            try:
                prepared[destination.id] = await destination.prepare(request, read)
            except ApiError as error:
                refusals[destination.id] = error
        return prepared, refusals

    async def _probe(self, prepared: Mapping[str, Prepared], principal: Principal) -> Vector | None:
        """The state of the small model that estimates are of, where it says more."""
        if not self._probes or self._quality is None or not self._quality.wants_state:
            return None
        small = (name for name in prepared if self._tiers.get(name) == "small" and name in self._estimated)
        # All of them are copies of one checkpoint.
        name = next((name for name in small if self._breakers[name].allows), None)
        destination = None if name is None else self._by_id.get(name)
        return None if name is None or destination is None else await destination.probe(prepared[name], principal)

    async def _embed(
        self, embedder: BatchEmbedder, text: str, vector: Vector | None, team: str
    ) -> tuple[Vector | None, Vector | None]:
        """The vector of a text and, where they are judged, those of its cores, with what is missing in one pass."""
        wanted = [text] if vector is None else []
        wanted += cores(text) if self._judges_cores else ()
        try:
            found = await embedder.embed_all(wanted, team) if wanted else []
        except Exception:
            # The words still tell the task; the cache reports an embedder that fails.
            return vector, None
        if vector is None:
            vector, *found = found
        return vector, np.array(found).reshape(-1, len(vector)) if self._judges_cores else None

    def _session(self, request: ChatRequest, principal: Principal) -> str:
        if request.session:
            return session_key(principal.team, request.session)
        first = next((m.content for m in request.messages if m.role == "user" and m.content), None)
        if first is None:
            return ""
        return session_key(principal.team, request.user or "", system_of(request), first)


def _limits(section: BreakerSection) -> BreakerLimits:
    return BreakerLimits(section.failures, section.open_s, section.longest_s)


def fingerprint(destination: Destination) -> str:
    """See `Routes.fingerprint`."""
    return f"hg-{destination.revision[:10]}"
