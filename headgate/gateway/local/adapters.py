"""Adapters of this server's models, as administrators add and remove them while it answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path

from headgate.engine.engine import Engine
from headgate.engine.errors import CheckpointError, EngineError, ModelsTooLarge, UnknownModel
from headgate.engine.front.local import LocalModel
from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.configuration.models import ModelSection
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.local.added_adapters import AddedAdapter, with_added, write_added
from headgate.gateway.local.checkpoints import adapter_path
from headgate.gateway.local.daemon_thread import in_own_thread
from headgate.gateway.local.destination import LocalDestination
from headgate.gateway.local.health import part_of
from headgate.gateway.routing.routes import Routes
from headgate.gateway.settings import Settings
from headgate.gateway.teams.costs import Prices
from headgate.gateway.wire.adapter_admin import AdapterState
from headgate.gateway.wire.errors import ApiError, conflict, invalid, model_not_found, overloaded

logger = logging.getLogger("headgate.gateway")


def _settled(adapter: AddedAdapter) -> AddedAdapter:
    """The same by the whole path of its folder: the next start may be in another one."""
    try:
        folder = Path(adapter.path).expanduser()
        return adapter.model_copy(update={"path": str(folder.resolve())}) if folder.is_dir() else adapter
    except (OSError, RuntimeError):  # who is to load it says why
        return adapter


class Adapters:
    """Those of the configuration, and those that were added. Calls come from one event loop; one change at a time."""

    def __init__(
        self,
        settings: Settings,
        added: Iterable[AddedAdapter],
        engine: Engine,
        lifecycle: Lifecycle,
        prices: Prices,
        check: Callable[[Settings], object],
    ) -> None:
        """Of a server that starts.

        Args:
            settings: of the configuration alone.
            added: what was added before it started.
            engine: has the models.
            lifecycle: learns which are there.
            prices: of all models.
            check: ConfigError where team files do not go with settings.
        """
        self._configured = settings
        self._added = {each.id: each for each in added}
        self._engine = engine
        self._lifecycle = lifecycle
        self._prices = prices
        self._check = check
        self._folder: Path | None = None
        self._routes: Routes | None = None
        self._failed: dict[str, str] = {}
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[AdapterState]] = set()
        self.changed: Callable[[], Awaitable[None]] | None = None
        """Has whoever reads team files know of it."""

    def onto(self, settings: Settings) -> Settings:
        """Settings with what was added."""
        return with_added(settings, self._added.values())

    @property
    def settings(self) -> Settings:
        """Those of the server."""
        return self.onto(self._configured)

    def retune(self, settings: Settings) -> None:
        """The configuration says something else of what needs no restart."""
        self._configured = settings

    def keep_in(self, folder: Path) -> None:
        """From now on what is added outlasts the process, in the data folder."""
        self._folder = folder

    async def open(self, routes: Routes) -> None:
        """Add what was added before the start. What cannot be served any more is told, and costs no other anything."""
        self._routes = routes
        for each in self._added.values():
            try:
                if self._configured_id(each.id):
                    raise conflict(f"The configuration has a model '{each.id}' itself.", "id", "adapter_exists")
                await self._serve(each)
            except ApiError as error:
                logger.error("the adapter %s, which was added before the start, is not served: %s", each.id, error)
                self._failed[each.id] = str(error)
                if not self._configured_id(each.id):
                    self._lifecycle.set(part_of(each.id), "failed", str(error), required=False)

    def report(self) -> list[AdapterState]:
        """All of them, by their models."""
        configured = [
            AdapterState(a.id, m.id, a.path, a.tier, "served", "", "configuration")
            for m in self._configured.models
            for a in m.adapters
        ]
        return [*configured, *map(self._state, self._added.values())]

    async def add(self, wanted: AddedAdapter, *, replace: bool) -> AdapterState:
        """Serve one more. ApiError where it cannot be; nothing has changed then.

        Whoever is cancelled does not stop it.
        """
        return await self._change(self._add(wanted, replace=replace))

    async def remove(self, name: str) -> AdapterState:
        """Serve one no more; its requests that run end as they would have. ApiError 404 or 409 where that cannot be."""
        return await self._change(self._remove(name))

    async def _change(self, change: Awaitable[AdapterState]) -> AdapterState:
        async def one() -> AdapterState:
            async with self._changing:
                return await change

        task = asyncio.create_task(one(), name="change adapters")
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _add(self, wanted: AddedAdapter, *, replace: bool) -> AdapterState:
        bases = [model.id for model in self._configured.models]
        if wanted.of not in bases:
            raise model_not_found(wanted.of, ", ".join(bases) or "none, all are upstreams")
        known = self._added.get(wanted.id)
        if self._configured_id(wanted.id):
            raise conflict(
                f"'{wanted.id}' is a model of the configuration; give the adapter another id.", "id", "adapter_exists"
            )
        if known is not None and known.id not in self._failed:
            if not replace:
                message = (
                    f"There is an adapter '{wanted.id}' already. With \"replace\": true it makes room for this one."
                )
                raise conflict(message, "id", "adapter_exists")
            if known.of != wanted.of:
                message = (
                    f"The adapter '{wanted.id}' is of '{known.of}'. Remove it first, to have one of '{wanted.of}'."
                )
                raise conflict(message, "model", "adapter_exists")
        wanted = _settled(wanted)
        await self._checked({**self._added, wanted.id: wanted})
        await self._serve(wanted)
        self._failed.pop(wanted.id, None)
        self._added[wanted.id] = wanted
        return await self._changed(wanted)

    async def _remove(self, name: str) -> AdapterState:
        gone = self._added.get(name)
        if gone is None:
            if any(a.id == name for m in self._configured.models for a in m.adapters):
                message = f"The adapter '{name}' is of the configuration: take it out there, and restart the server."
                raise conflict(message, "id", "adapter_configured")
            known = ", ".join(self._added) or "none"
            message = f"The adapter '{name[:80]}' does not exist. Added to this server: {known}."
            raise ApiError(404, message, param="id", code="adapter_not_found")
        left = {other: each for other, each in self._added.items() if other != name}
        await self._checked(left)
        if not self._configured_id(name):
            assert self._routes is not None, "requests wait until the models are there"
            self._routes.remove(name)
            self._lifecycle.drop(part_of(name))
            with suppress(UnknownModel):  # it could not be served
                await in_own_thread(lambda: self._engine.remove_adapter(name), f"remove {name}")
        self._failed.pop(name, None)
        self._added = left
        logger.warning("the adapter %s of %s is removed", name, gone.of)
        return await self._changed(gone)

    async def _serve(self, adapter: AddedAdapter) -> None:
        """Have the engine load it, and requests find it."""
        section = self._section(adapter)
        loaded: list[LocalModel] = []

        def load() -> None:
            path = adapter_path(section)
            assert path is not None, "the section is an adapter's"
            loaded.append(self._engine.add_adapter(adapter.of, adapter.id, path))

        try:
            await in_own_thread(load, f"load {adapter.id}")
        except CheckpointError as error:
            raise invalid(f"The adapter '{adapter.id}' cannot be served: {error}.", "path", "invalid_adapter") from None
        except ModelsTooLarge as error:
            message = f"The adapter '{adapter.id}' finds no room: {error}."
            raise ApiError(507, message, type="server_error", code="out_of_memory") from None
        except EngineError as error:
            raise overloaded(f"The adapter '{adapter.id}' is not loaded: {error}.") from None
        (model,) = loaded
        assert self._routes is not None, "requests wait until the models are there"
        self._prices.put(section)
        base = self._routes.destination(adapter.of)
        assert isinstance(base, LocalDestination), "upstreams have no adapters"
        self._routes.add(
            LocalDestination(model, lacks=section.lacks, sleep=section.sleep, pictures=base.pictures), section
        )
        self._lifecycle.set(part_of(adapter.id), "ready", required=False)

    def _section(self, adapter: AddedAdapter) -> ModelSection:
        base = next((model for model in self._configured.models if model.id == adapter.of), None)
        if base is None:
            raise model_not_found(adapter.of, ", ".join(model.id for model in self._configured.models) or "none")
        # Of the model and this one alone: others may be there that do not go with it.
        return base.model_copy(update={"adapters": (adapter.section,)}).models[1]

    async def _checked(self, added: dict[str, AddedAdapter]) -> None:
        settings = with_added(self._configured, added.values())
        try:
            await asyncio.to_thread(self._check, settings)
        except ConfigError as error:
            message = f"Nothing was changed, for the configuration would not go with it: {'; '.join(error.problems)}."
            raise conflict(message, "id", "bad_configuration") from None

    async def _changed(self, adapter: AddedAdapter) -> AdapterState:
        """Keep what there is now, and have others know."""
        kept = self._folder is not None
        if self._folder is not None:
            try:
                await asyncio.to_thread(write_added, self._folder, list(self._added.values()))
            except OSError as error:
                logger.error("the next start will not know of the change of the adapter %s: %s", adapter.id, error)
                kept = False
        if self.changed is not None:
            await self.changed()
        state = self._state(adapter)
        state.lasts = kept
        return state

    def _state(self, adapter: AddedAdapter) -> AdapterState:
        there, why = adapter.id in self._added, self._failed.get(adapter.id, "")
        return AdapterState(
            adapter.id,
            adapter.of,
            adapter.path,
            adapter.tier,
            "failed" if why else "served" if there else "removed",
            why,
            "added",
            self._folder is not None,
        )

    def _configured_id(self, name: str) -> bool:
        settings = self._configured
        return name == settings.embeddings.id or any(model.id == name for model in settings.named)
