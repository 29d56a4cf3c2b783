"""Names on the wire to destinations: `auto` goes by task, `small` and `large` by tier, an id to its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headgate.cache.embedder import Embedder, Vector
from headgate.gateway.destinations import Destination
from headgate.gateway.request import ChatRequest
from headgate.gateway.wire.errors import model_not_found, overloaded
from headgate.routing.classes import TaskClassifier
from headgate.routing.task_router import Router
from headgate.routing.tasks import Task
from headgate.routing.types import Destination as Candidate
from headgate.routing.types import NoneReady, NoRoute, Route, RouteFeatures, Tier

AUTO = "auto"
POLICIES = (AUTO, "small", "large")


class Routes:
    """Every destination, the names it is known by, and the router between them."""

    def __init__(self, destinations: Sequence[Destination], tiers: Mapping[str, Tier], tasks: Sequence[Task]) -> None:
        """Name the destinations; until `understand` is called tasks are told by their words.

        Args:
            destinations: at least one; ids are unique.
            tiers: tier by id, for the models that have one.
            tasks: the task classes of the router.
        """
        self._by_id = {d.id: d for d in destinations}
        self._tiers = dict(tiers)
        self._tasks = tasks
        self._router = Router(tasks, TaskClassifier(tasks))
        # Whatever else there is to know of a request, one that names a model goes there.
        self._named = {d.id: self._router.choose(RouteFeatures(""), d.id, [self._state(d)]) for d in destinations}
        self._embedder: Embedder | None = None

    @property
    def destinations(self) -> Mapping[str, Destination]:
        """By id, in the order of the configuration."""
        return self._by_id

    async def understand(self, embedder: Embedder) -> None:
        """From now on tell tasks by meaning: the embedder has been loaded."""
        self._router = Router(self._tasks, await TaskClassifier.build(self._tasks, embedder))
        self._embedder = embedder

    def tier(self, model_id: str) -> Tier | None:
        """The configured tier of a model."""
        return self._tiers.get(model_id)

    def candidates(self, name: str) -> list[Destination]:
        """Where a name may lead; ApiError 404 where it leads nowhere.

        The names of policies may lead to every model with a tier, or to all where none has one.
        """
        if name in self._by_id:
            return [self._by_id[name]]
        if name not in POLICIES:
            raise model_not_found(name, ", ".join([*POLICIES, *self._by_id]))
        return [d for d in self._by_id.values() if d.id in self._tiers] or list(self._by_id.values())

    def fingerprint(self, model_id: str) -> str:
        """OpenAI's `system_fingerprint`: changes with the weights."""
        return f"hg-{self._by_id[model_id].revision[:10]}"

    async def choose(self, request: ChatRequest, vector: Vector | None, team: str = "") -> Route:
        """Where to generate and why. `vector` embeds the last user text, where the cache computed it for the `team`.

        ApiError 404 where the name leads nowhere, 503 where nothing is ready.
        """
        named = self._named.get(request.model)
        if named is not None:
            return named
        text = request.last_user_text or ""
        if vector is None and request.model == AUTO and self._embedder is not None and text.strip():
            vector = await self._embed(self._embedder, text, team)
        features = RouteFeatures(
            text=text,
            vector=vector,
            prompt_chars=_prompt_chars(request),
            max_tokens=request.max_tokens or 0,
            turns=max(len(request.messages), 1),
        )
        try:
            return self._router.choose(
                features, request.model, [self._state(d) for d in self.candidates(request.model)]
            )
        except NoneReady as error:
            raise overloaded(f"No model is ready: {error}.") from None
        except NoRoute:
            raise model_not_found(request.model, ", ".join([*POLICIES, *self._by_id])) from None

    async def _embed(self, embedder: Embedder, text: str, team: str) -> Vector | None:
        try:
            return await embedder.embed(text, team)
        except Exception:
            # The words still tell the task; the cache reports an embedder that fails.
            return None

    def _state(self, destination: Destination) -> Candidate:
        # A model without a tier is only asked where no other is: it may then be taken for a large one.
        tier = self._tiers.get(destination.id, "large")
        return Candidate(destination.id, tier, destination.facts.context_length, queue_depth=destination.waiting)


def _prompt_chars(request: ChatRequest) -> int:
    return sum(len(m.content or "") for m in request.messages) + len(request.prompt or "")
