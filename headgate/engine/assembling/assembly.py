"""Makes of a model that was read, and of its share of the memory, what serves it: its lane and all that hangs on it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from headgate.engine.assembling.describing import model_info
from headgate.engine.assembling.dividing import KVShare
from headgate.engine.assembling.reading import Reader, ReadModel
from headgate.engine.assembling.tiering import Tiering, model_parts
from headgate.engine.device import computing_on
from headgate.engine.device_steps.ahead import AheadDecoder
from headgate.engine.device_steps.graphs import recorder
from headgate.engine.device_steps.prompt_steps import PromptSteps, recorded_sizes, spare_blocks
from headgate.engine.errors import CheckpointError
from headgate.engine.front.local import LocalModel
from headgate.engine.kernels.device_rows import RowKernels
from headgate.engine.kv.kinds import kv_tables
from headgate.engine.kv.store import KVStore
from headgate.engine.kv.tables import KVTables
from headgate.engine.kv.tiers import Tiers
from headgate.engine.kv.window import Window, partial_window
from headgate.engine.lane import Lane
from headgate.engine.lanes.adapting import Adapting
from headgate.engine.lanes.sleeper import Sleeper
from headgate.engine.loop import StepLoop
from headgate.engine.models.decoder import Decoder
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.models.resting import Parked, ReadAgain
from headgate.engine.runner import Runner
from headgate.engine.scheduler import Scheduler
from headgate.engine.settings import EngineSettings
from headgate.engine.stepping.seeing import picture_reader
from headgate.engine.text.chat_template import ChatTemplate

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Assembled:
    """A model that is served.

    Attributes:
        lane: its queue, cache and steps.
        local: the model as others ask it.
        adapting: changes its adapters.
    """

    lane: Lane
    local: LocalModel
    adapting: Adapting


@dataclass(frozen=True, slots=True)
class _Computing:
    """Makes what computes with a decoder of one model: at once, and anew each time that the model wakes.

    Attributes:
        folder: the checkpoint's.
        sees: whether the model reads pictures.
        context_length: most tokens of a sequence, whatever memory there is.
        longest: most tokens of a sequence, with the memory that there is.
    """

    settings: EngineSettings
    device: torch.device
    rows: RowKernels | None
    share: KVShare
    folder: Path
    sees: bool
    context_length: int
    longest: int

    def __call__(self, decoder: LanguageModel) -> Runner:
        if not self.sees:
            decoder.eyes = None
        elif decoder.eyes is None:
            raise CheckpointError(f"{self.folder}: its part that sees cannot be loaded again")
        settings, share, ahead = self.settings, self.share, self.rows is not None
        most, size = settings.max_running, settings.block_size
        record = recorder(self.device) if ahead else None
        sizes: Sequence[int] = ()
        if record is not None and settings.record_prompts:
            sizes = recorded_sizes(decoder, share.blocks, size, settings.max_step_tokens)
        store = KVStore(
            decoder.spec,
            share.blocks + spare_blocks(sizes, size) + ahead,
            size,
            share.dtype,
            self.device,
            share.states,
            pages=share.pages,
            context_length=self.context_length,
        )
        decoding = prompts = None
        if sizes and record is not None and isinstance(decoder, Decoder):
            prompts = PromptSteps(decoder, store, sizes, most=most, longest=self.longest, record=record)
        if self.rows is not None and decoder.steps_on_device:
            decoding = AheadDecoder(decoder, store, self.rows, most=most, longest=self.longest, record=record)
        return Runner(decoder, store, decoding, prompts)


class Assembly:
    """Serves models on a device, in a step loop."""

    def __init__(
        self,
        settings: EngineSettings,
        device: torch.device,
        loop: StepLoop,
        reader: Reader,
        *,
        kernels: str,
        rows: RowKernels | None,
        tiering: Tiering | None,
        clock: Callable[[], float],
    ) -> None:
        """`kernels`: what computes, in words. `rows`: what begins steps ahead, if they are to be. `reader`: what has
        read the models, and reads them again after a sleep.
        """
        self._settings = settings
        self._device = device
        self._loop = loop
        self._reader = reader
        self._kernels = kernels
        self._rows = rows
        self._tiering = tiering
        self._clock = clock

    def assemble(self, model: ReadModel, share: KVShare) -> Assembled:
        """Serve a model from now on, with so much memory.

        Raises:
            CheckpointError: a file beside the weights is damaged, or a tier holds no block.
        """
        spec, loaded, decoder, settings = model.spec, model.loaded, model.decoder, self._settings
        if share.pages:
            told = spec.name, share.blocks, settings.block_size, share.pages
            logger.info("%s: %d blocks of %d tokens; layers that see a window have %d pages", *told)
        pictures = picture_reader(spec.path, decoder, model.tokenizer, settings.max_step_tokens - settings.max_running)
        tables, tiers = self._tables(model, share)
        longest = tables.longest(model.context_length)
        # It outlives the decoder, which a model that sleeps gives up, and so knows nothing of what was read.
        computing = _Computing(
            settings,
            self._device,
            self._rows,
            share,
            spec.path,
            pictures is not None,
            model.context_length,
            longest,
        )
        lane = Lane(
            Scheduler(tables, settings, tiers),
            computing(decoder),
            context_length=model.context_length,
            eos_ids=model.tokenizer.eos_ids,
            clock=self._clock,
            adapters={name: facts.revision for name, facts in loaded.adapters.items()},
            lookup=settings.prompt_lookup and self._rows is None,
        )
        on_device, call = partial(computing_on, self._device), self._loop.call
        again = partial(self._reader.read_decoder, replace(spec, adapters={}))
        weights = Parked(decoder) if self._device.type == "cuda" else ReadAgain(loaded, again)
        sleeper = Sleeper(spec.name, lane, weights, computing, call=call, device=on_device, clock=self._clock)
        adapting = Adapting(spec.name, lane, sleeper, call=call, running=lambda: self._loop.running, device=on_device)
        self._loop.attach(spec.name, lane, sleeper.rouse, [*loaded.adapters])
        template = ChatTemplate.load(spec.path)
        info = model_info(model, template, settings, context_length=lane.context_length, device=self._device)
        return Assembled(lane, LocalModel(info, model.tokenizer, template, self._loop, sleeper, pictures), adapting)

    def _tables(self, model: ReadModel, share: KVShare) -> tuple[KVTables, Tiers | None]:
        settings, shape, size = self._settings, model.decoder.spec, self._settings.block_size
        remembers = bool(shape.state_shapes)
        if self._tiering is not None and not remembers:  # blocks alone are no use to a model that keeps states
            # Tiers have prefixes from their beginning on: blocks behind windows are kept for them.
            made_of = model_parts(
                model.spec.path, model.loaded, model.spec.weights, str(share.dtype), size, self._kernels
            )
            mark = self._tiering.mark(made_of)
            tables = KVTables(share.blocks, size, self._tiering.key, dtype=f"{share.dtype}{mark}")
            return tables, self._tiering.open(tables, mark, share.block_nbytes, share.all_nbytes)
        window = None
        if not remembers:
            window = Window.of(
                partial_window(shape.kv_windows, model.context_length) if share.pages else shape.window,
                step=settings.max_step_tokens,
                block_size=size,
                blocks=share.pages or share.blocks,
                context_length=model.context_length,
            )
        tables = kv_tables(
            share.blocks,
            size,
            secrets.token_bytes(32),
            prefix_cache=settings.prefix_cache,
            dtype=str(share.dtype),
            states=share.states if remembers else 0,
            window=window,
            pages=share.pages,
        )
        return tables, None
