"""The step loop: one thread that owns a device and takes turns between the models on it.

Other threads talk to it through an inbox of commands; what a round of steps produced goes out in one call per
listener. Nothing but the step thread touches schedulers, caches or the device.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch

from headgate.engine.device import computing_on
from headgate.engine.errors import EngineStopped, UnknownModel
from headgate.engine.lane import Lane
from headgate.engine.lanes.stats import ModelStats
from headgate.engine.lanes.tally import Tally
from headgate.engine.request import Delta, Finish, Request
from headgate.engine.stepping.inputs import Interrupt
from headgate.engine.text.pictures import Sight

logger = logging.getLogger(__name__)

_RUN_S = 0.008
"""How long tokens wait for those of the following steps where steps are short. Deciding about a step and handing its
tokens over costs half a small model's step, and no screen shows more than some 120 states of a text in a second."""

Listener = Callable[[Sequence[Delta]], None]
"""Called on the step thread with everything one round produced for it; must return at once."""


Command = Callable[[], list[Delta]]
"""What the step thread does between two steps. What it returns goes to those who listen."""


class _Entering:
    """Requests that were submitted and that no lane knows yet, background work aside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, tuple[int, int]] = {}

    def add(self, lane: str, request: Request, times: int = 1) -> None:
        """One more, or with -1 one less."""
        if request.priority != "background":
            with self._lock:
                choices, tokens = self._of.get(lane, (0, 0))
                self._of[lane] = choices + times * request.n, tokens + times * len(request.prompt)

    def of(self, lane: str) -> tuple[int, int]:
        """How many choices, and tokens of prompts."""
        return self._of.get(lane, (0, 0))


class StepLoop:
    """Submit requests, cancel them, listen to their deltas."""

    def __init__(
        self,
        *,
        threads: int | None = None,
        device: torch.device | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`threads`: for operators on the CPU; None leaves torch's own choice. `device`: what is computed on."""
        self._threads = threads
        self._device = device or torch.device("cpu")
        self._clock = clock
        self._lanes: dict[str, Lane] = {}
        self._rouse: dict[str, Callable[[], None]] = {}
        self._adapters: dict[str, str] = {}  # the models that share a lane, and whose it is
        self._inbox: queue.SimpleQueue[Command | None] = queue.SimpleQueue()  # None: to stop
        self._live: dict[str, tuple[Lane, Listener, set[int]]] = {}
        self._entering = _Entering()
        self._admitting = False
        self._drained = threading.Event()
        self._draining = threading.Event()
        self._interrupt = Interrupt()
        self._rounds = 0
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether requests are taken."""
        return self._admitting

    def attach(
        self, name: str, lane: Lane, rouse: Callable[[], None] | None = None, adapters: Sequence[str] = ()
    ) -> None:
        """Serve a model from now on. Models are attached before requests name them.

        `rouse` is called, on the step thread, where a request comes while the lane rests. `adapters` are models of the
        same lane, which knows them.
        """
        for model in (name, *adapters):
            if model in self._lanes or model in self._adapters:
                raise ValueError(f"a model named {model!r} is attached already")
            if model == name:
                self._lanes[name] = lane
            else:
                self._adapters[model] = name
        if rouse is not None:
            self._rouse[name] = rouse

    def admit(self, model: str, name: str) -> None:
        """Take requests for an adapter that the lane of the model `name` knows from now on."""
        if model in self._lanes or (self._adapters.get(model, name) != name and self._knows(model)):
            raise ValueError(f"a model named {model!r} is attached already")
        self._adapters[model] = name

    def stats(self, model: str) -> ModelStats:
        """A model's figures. Who has just submitted something finds it among what waits."""
        stats = self._lane(model).stats
        choices, tokens = self._entering.of(self._lane_name(model))
        if not choices:
            return stats
        return replace(stats, waiting=stats.waiting + choices, pending_tokens=stats.pending_tokens + tokens)

    def tally(self, model: str) -> Tally:
        """A model's distributions since the start."""
        return self._lane(model).tally

    def resident(self, model: str, tenant: str, prompt: tuple[int, ...], sights: tuple[Sight, ...] = ()) -> int:
        """Tokens of a prompt whose keys and values the tenant would find in the model's cache now."""
        return self._lane(model).resident(tenant, prompt, model, sights)

    def start(self) -> None:
        """Start the step thread."""
        if self._thread is not None:
            raise EngineStopped("an engine is started once")
        self._thread = threading.Thread(target=self._run, name="headgate-step", daemon=True)
        self._admitting = True
        self._thread.start()

    def stop(self, deadline_s: float = 0.0) -> None:
        """Take no more requests, give the present ones `deadline_s` to finish, cancel the rest, end the thread."""
        self._admitting = False
        thread = self._thread  # somebody else may wait for its end, too
        if thread is None:
            return
        self._draining.set()
        self.call(list)  # it looks whether there is anything left
        self._drained.wait(timeout=deadline_s)
        self._tell(None)
        thread.join()
        self._thread = None

    def submit(self, request: Request, listener: Listener) -> None:
        """Queue a request. Each of its `n` choices ends with one delta that carries a Finish.

        Raises:
            UnknownModel, EngineStopped, PromptTooLong: the request was not queued.
            ValueError: the prompt is empty, or has pictures that the model cannot see.
        """
        lane = self._lane(request.model)
        request.check(lane.longest(request))
        if request.sights and not lane.sees:
            raise ValueError(f"the prompt has {len(request.sights)} pictures; model {request.model!r} sees none")
        if not self._knows(request.model, request.revision):
            raise self._unknown(request.model)
        if not self._admitting:
            raise EngineStopped("the engine takes no requests: it is stopping or was not started")
        name = self._lane_name(request.model)
        self._entering.add(name, request)
        self.call(partial(self._enter, name, request, listener, self._clock()))

    def cancel(self, request_id: str, choice: int | None = None) -> None:
        """End a request, or one choice of it, before the next step. Unknown or finished ones are ignored."""
        self.call(partial(self._cancel, request_id, choice))

    def unpin(self, model: str, request_id: str) -> None:
        """Let go of what a request has pinned, before the next step. Unknown ones are ignored."""
        self.call(partial(self._lane(model).unpin, request_id))

    def call(self, command: Command) -> None:
        """Have the step thread do something between two steps."""
        self._tell(command)

    def _tell(self, command: Command | None) -> None:
        self._inbox.put(command)
        self._interrupt.set()

    def _lane_name(self, model: str) -> str:
        return self._adapters.get(model, model)

    def _lane(self, model: str) -> Lane:
        lane = self._lanes.get(self._lane_name(model))
        if lane is None:
            raise self._unknown(model)
        return lane

    def _knows(self, model: str, revision: str = "") -> bool:
        """Whether a lane has the model, or still has an adapter that was taken away."""
        return model in self._lanes or self._lane(model).adapters.number(model, revision) is not None

    def _unknown(self, model: str) -> UnknownModel:
        adapters = (name for lane in self._lanes.values() for name in lane.adapters.names)
        loaded = ", ".join(sorted([*self._lanes, *adapters])) or "none"
        return UnknownModel(f"model {model!r} is not loaded; loaded are {loaded}")

    def _run(self) -> None:
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        # Once: entering inference mode anew in every step is felt by small models.
        with computing_on(self._device), torch.inference_mode():
            self._work()

    def _work(self) -> None:
        stopping = False
        while not stopping:
            out: list[Delta] = []
            stopping = self._take_commands(out)
            lanes = list(self._lanes.values())
            if self._draining.is_set():
                for lane in lanes:
                    out.extend(lane.cancel_background())
            if stopping:
                for lane in lanes:
                    out.extend(lane.cancel_all())
            else:
                out.extend(self._round(lanes))
            self._publish(out)
            if self._draining.is_set() and all(lane.idle and not lane.stalled for lane in lanes):
                self._drained.set()

    def _round(self, lanes: list[Lane]) -> list[Delta]:
        """One step of every lane that has something to do; where no user waits, of one lane only.

        So whoever arrives meanwhile waits for one small step, however many models have background work. A lane that is
        the only one with work may take several steps.
        """
        lanes = [lane for lane in lanes if not lane.idle]
        run_s = _RUN_S if len(lanes) == 1 else 0.0
        alone = all(lane.quiet for lane in lanes)
        if alone and lanes:
            self._rounds += 1
            lanes = lanes[self._rounds % len(lanes) :][:1]
        return [delta for lane in lanes for delta in self._step(lane, alone=alone, run_s=run_s)]

    def _step(self, lane: Lane, *, alone: bool, run_s: float) -> list[Delta]:
        try:
            return lane.step(alone=alone, run_s=run_s, interrupt=self._interrupt)
        except Exception as error:
            # Outside the device's work nothing should raise; if it does, this model starts afresh and the thread lives.
            logger.exception("the step loop failed; the requests of one model are ended")
            return lane.fail_all(f"{type(error).__name__}: {error}")

    def _take_commands(self, out: list[Delta]) -> bool:
        """Carry out what is in the inbox, waiting for something if all lanes are idle. True when told to stop.

        While nobody wants anything, or where many wait for it, one of the lanes prepares something.
        """
        wait = all(lane.idle for lane in self._lanes.values())
        if self._inbox.empty() and any(lane.prepare(idle=wait) for lane in self._lanes.values()):
            wait = False
        self._interrupt.clear()  # whoever puts something in sets it after that
        # Only this thread takes from the inbox: what is in it stays until it looks.
        while wait or not self._inbox.empty():
            command = self._inbox.get()
            wait = False
            if command is None:
                return True
            out.extend(command())
        return False

    def _enter(self, name: str, request: Request, listener: Listener, at: float) -> list[Delta]:
        lane = self._lanes[name]
        self._live[request.id] = (lane, listener, set(range(request.n)))
        found: list[Delta] = []
        if request.model == name or lane.adapters.number(request.model, request.revision) is not None:
            lane.submit(request, at)
            if lane.resting:
                self._rouse[name]()
        else:  # it was taken away since the request was sent here
            gone = Finish("error", len(request.prompt), 0, 0, error=str(self._unknown(request.model)), cause="gone")
            found = [Delta(request.id, choice, finish=gone) for choice in range(request.n)]
        self._entering.add(name, request, -1)
        return found

    def _cancel(self, request_id: str, choice: int | None) -> list[Delta]:
        live = self._live.get(request_id)
        return [] if live is None else live[0].cancel(request_id, choice)

    def _publish(self, deltas: list[Delta]) -> None:
        batches: dict[Listener, list[Delta]] = {}
        for delta in deltas:
            _, listener, open_choices = self._live[delta.request_id]
            batches.setdefault(listener, []).append(delta)
            if delta.finish is not None:
                open_choices.discard(delta.index)
                if not open_choices:
                    del self._live[delta.request_id]
        for listener, batch in batches.items():
            try:
                listener(batch)
            except Exception:
                # A listener that is gone, such as a closed event loop, must not take the others' tokens with it.
                logger.exception("a listener failed; its %d deltas are lost", len(batch))
