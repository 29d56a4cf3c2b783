"""The engine as the rest of the product sees it: load models, start, stream from them, stop."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import torch

from headgate.engine.adapting import Adapting
from headgate.engine.ahead import AheadDecoder
from headgate.engine.cpu_time import bounded_threads
from headgate.engine.describing import adapted_info, model_info
from headgate.engine.device import computing_on, open_device
from headgate.engine.drafting import Served, have_drafted
from headgate.engine.errors import CheckpointError, ModelsTooLarge, UnknownArchitecture, UnknownModel, lacks_memory
from headgate.engine.graphs import Recorder, recorder
from headgate.engine.kernels.choice import choose_kernels, row_kernels
from headgate.engine.kernels.device_rows import RowState
from headgate.engine.kernels.interface import AttentionShape
from headgate.engine.kv.budget import BlockBytes, block_bytes, divided, kv_budget
from headgate.engine.kv.kinds import kv_tables
from headgate.engine.kv.store import KVStore, kv_bytes_per_token, kv_dtype, state_bytes
from headgate.engine.kv.tables import KVTables
from headgate.engine.kv.tiers import Tiers
from headgate.engine.kv.window import Window, partial_window
from headgate.engine.lane import Lane
from headgate.engine.largest_step import largest_step
from headgate.engine.local import LocalModel
from headgate.engine.loop import Listener, StepLoop
from headgate.engine.models.decoder import Decoder
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.models.loader import LoadedDecoder, computed_in
from headgate.engine.models.loading import load_model
from headgate.engine.models.opening import folder_tensors, open_checkpoint
from headgate.engine.models.resting import Parked, ReadAgain
from headgate.engine.models.tensors import Tensors
from headgate.engine.prompt_steps import PromptSteps, recorded_sizes, spare_blocks
from headgate.engine.request import Request
from headgate.engine.runner import Runner
from headgate.engine.scheduler import Scheduler
from headgate.engine.seeing import picture_reader
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.engine.sleeper import Sleeper
from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.tokenizer import Tokenizer
from headgate.engine.tiering import Tiering, model_parts
from headgate.engine.trial import Shapes, proved

logger = logging.getLogger(__name__)

_TELLING_S = 3.0
"""Seconds between two lines of the log on how far a model is read."""


class Engine:
    """Models of one device, behind one step thread."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        tensors: Callable[[Path], Tensors] = folder_tensors,
    ) -> None:
        """`tensors` opens a checkpoint's folder."""
        self._settings = settings
        self._clock = clock
        self._tensors = tensors
        self._models: dict[str, LocalModel] = {}
        self._lanes: dict[str, LocalModel] = {}
        self._adapting: dict[str, Adapting] = {}
        self.device = open_device(settings.device)
        threads = settings.threads
        if threads is None and (threads := bounded_threads()) is not None:
            logger.info("%d threads for a step: the container has the time of no more processors", threads)
        self._loop = StepLoop(threads=threads, device=self.device, clock=clock)
        self._kernels = choose_kernels(settings.kernels, self.device)
        self._row_kernels = row_kernels(self._kernels, settings.decode_ahead, self.device)
        self._tiering: Tiering | None = None
        if not self._kernels.untried:
            logger.info("kernels: %s", self._kernels.why)
        if settings.kv_dtype == "fp8" and not self._kernels.kernels.fp8_cache:
            raise ValueError(
                f"kv_dtype is 'fp8', which these kernels cannot keep ({self._kernels.why}); int8 takes as little memory"
            )

    @property
    def models(self) -> Mapping[str, LocalModel]:
        """Loaded models by name."""
        return MappingProxyType(self._models)

    @property
    def lanes(self) -> Mapping[str, LocalModel]:
        """Of the loaded models those whose weights, cache and steps are their own: others share them."""
        return MappingProxyType(self._lanes)

    @property
    def kernels(self) -> str:
        """Which kernels compute, and why. Others may once models are loaded: see `trial`."""
        return self._kernels.why

    @property
    def ready(self) -> bool:
        """Whether models are loaded and requests are taken."""
        return self._loop.running and bool(self._models)

    def load(self, *specs: ModelSpec) -> None:
        """Load models and divide the KV budget between them, so that each can hold equally many tokens.

        Blocks until done; call it once, before `start`.

        Raises:
            CheckpointError: a checkpoint cannot be served, or the budget does not hold one block per model.
            KVFolderError: kv_disk_path cannot be used.
            ModelsTooLarge: the device's memory does not suffice.
        """
        try:
            self._load(specs)
        except BaseException as error:
            if self._tiering is not None:
                self._tiering.close()  # another engine may have the folder
                self._tiering = None
            if isinstance(error, (RuntimeError, MemoryError)) and lacks_memory(error):
                raise ModelsTooLarge(self.device, error) from error
            raise

    def _load(self, specs: Sequence[ModelSpec]) -> None:
        settings = self._settings
        if settings.prefix_cache and (settings.kv_host_bytes or settings.kv_disk_path is not None):
            self._tiering = Tiering(
                self.device,
                host_bytes=settings.kv_host_bytes,
                disk_path=settings.kv_disk_path,
                disk_bytes=settings.kv_disk_bytes,
                call=self._loop.call,
            )
        self._try_kernels(specs)
        # torch's operators leave a pool of OpenMP workers behind in every thread that runs them. With more workers than
        # cores OpenMP stops spinning and every parallel operator of the step thread pays for waking them, which
        # small models feel most. A thread that ends takes its pool along.
        with ThreadPoolExecutor(1, thread_name_prefix="load") as loading:
            loaded = [(spec, *parts) for spec, parts in zip(specs, loading.map(self._read, specs), strict=True)]
        with computing_on(self.device):
            self._try_out(loaded)
            self._share_memory(loaded)

    def start(self) -> None:
        """Take requests."""
        self._loop.start()

    def add_adapter(self, model: str, name: str, folder: Path) -> LocalModel:
        """Serve an adapter of a loaded model as one more, beside all that runs; one of the same name makes room for it.

        It takes until it can be asked; a model that sleeps is woken. Call it from a thread that ends, of a started
        engine, one change at a time.

        Raises:
            UnknownModel: `model` is not loaded, or an adapter itself.
            ValueError: the name is taken, by what is no adapter of this model.
            CheckpointError: it cannot be served; the message names the file, and the tensor or key.
            ModelsTooLarge: the device has no memory for it.
            WakeFailed, EngineStopped: nobody computes.
        """
        base = self._lanes.get(model)
        if base is None:
            raise UnknownModel(f"model {model!r} is not loaded; loaded are {', '.join(self._lanes) or 'none'}")
        taken = self._models.get(name)
        if taken is not None and taken.info.adapter_of != model:
            raise ValueError(f"a model named {name!r} is loaded already")
        self._loop.admit(name, model)
        try:
            facts = self._adapting[model].add(name, folder)
        except (RuntimeError, MemoryError) as error:
            if lacks_memory(error):
                raise ModelsTooLarge(self.device, error) from error
            raise
        added = base.adapted(adapted_info(base.info, name, facts))
        self._models = {**self._models, name: added}
        return added

    def remove_adapter(self, name: str) -> None:
        """Take no more requests for an adapter. What runs goes on; its memory comes back when that has ended.

        Raises:
            UnknownModel: there is no adapter of that name.
            EngineStopped: nobody computes.
        """
        found = self._models.get(name)
        if found is None or not found.info.adapter_of:
            adapters = [each for each, model in self._models.items() if model.info.adapter_of]
            raise UnknownModel(f"there is no adapter {name!r}; there are {', '.join(adapters) or 'none'}")
        self._adapting[found.info.adapter_of].remove(name)
        self._models = {each: model for each, model in self._models.items() if each != name}

    def submit(self, request: Request, listener: Listener) -> None:
        """Tokens in, tokens out, past all text; see StepLoop.submit."""
        self._loop.submit(request, listener)

    def cancel(self, request_id: str, choice: int | None = None) -> None:
        """End what `submit` started; see StepLoop.cancel."""
        self._loop.cancel(request_id, choice)

    def stop(self, *, deadline_s: float = 0.0) -> None:
        """Take no more requests, give the present ones `deadline_s` to finish, cancel the rest."""
        self._loop.stop(deadline_s)
        if self._tiering is not None:
            self._tiering.close()

    def _try_kernels(self, specs: Sequence[ModelSpec]) -> None:
        if not self._kernels.untried:
            return
        shapes = []
        for each in specs:
            try:
                opened = open_checkpoint(each.path, self._tensors)
            except UnknownArchitecture:
                continue  # a guest is tried as a whole
            shapes.append(Shapes.of(opened.spec, computed_in(opened.config, each.dtype)))
        self._kernels = proved(self._kernels, self.device, shapes)
        self._row_kernels = row_kernels(self._kernels, self._settings.decode_ahead, self.device)
        logger.info("kernels: %s", self._kernels.why)

    def _try_out(self, loaded: Iterable[tuple[ModelSpec, LoadedDecoder, Tokenizer]]) -> None:
        for _, each, _ in loaded:
            if not isinstance(each.decoder, Decoder):
                continue  # a guest was tried as a whole
            spec, dtype = each.decoder.spec, each.decoder.dtype
            if kv_dtype(self._settings.kv_dtype, dtype) == dtype:
                shape = AttentionShape(spec.heads, spec.kv_heads, spec.head_dim, dtype, self._settings.block_size)
                self._kernels.kernels.try_out(shape, spec.layers, self.device)

    def _share_memory(self, loaded: Sequence[tuple[ModelSpec, LoadedDecoder, Tokenizer]]) -> None:
        budget = (
            self._settings.kv_bytes
            if self._settings.kv_bytes is not None
            else kv_budget(self.device, self._largest_steps(loaded), self._row_bytes(loaded))
        )
        per_token = sum(self._kv_bytes_per_token(loaded_decoder) for _, loaded_decoder, _ in loaded)
        state = sum(state_bytes(loaded_decoder.decoder.spec) for _, loaded_decoder, _ in loaded)
        block = per_token * self._settings.block_size
        models = [self._block_bytes(spec, loaded_decoder) for spec, loaded_decoder, _ in loaded]
        blocks, states = divided(budget, models=models, state=state, most_states=2 * self._settings.max_running)
        if blocks < 1 or (state and not states):
            least = 2 * max(block, state) if state else block
            raise CheckpointError(f"kv_bytes {budget} holds no block{' and state' * bool(state)}; {least} is the least")
        served = dict[str, Served]()
        for spec, decoder, tokenizer in loaded:
            lane, model = self._serve(spec, decoder, tokenizer, blocks, states, per_token)
            served[spec.name] = Served(lane, decoder.decoder.spec, tokenizer)
            self._models[spec.name] = self._lanes[spec.name] = model
            for name, facts in decoder.adapters.items():
                self._models[name] = model.adapted(adapted_info(model.info, name, facts))
        for spec, _, _ in loaded:
            have_drafted(spec, served)

    def _read(self, spec: ModelSpec) -> tuple[LoadedDecoder, Tokenizer]:
        try:
            return self._read_parts(spec)
        except CheckpointError as error:
            raise type(error)(f"the model '{spec.name}': {error}") from error

    def _read_parts(self, spec: ModelSpec) -> tuple[LoadedDecoder, Tokenizer]:
        started = self._clock()
        Tokenizer.file_of(spec.path)  # if there is none, that is told before weights are read
        with computing_on(self.device):
            loaded = self._read_decoder(spec)
        # After the weights, whose quantising takes the most memory: a large vocabulary takes 60 MB itself.
        tokenizer = Tokenizer.load(spec.path)
        vocab_size = loaded.decoder.spec.vocab_size
        if tokenizer.vocab_size > vocab_size:
            raise CheckpointError(
                f"{spec.path}: tokenizer.json has token ids up to {tokenizer.vocab_size - 1}; "
                f"vocab_size {vocab_size} of config.json accepts those below {vocab_size}"
            )
        logger.info("loaded %s from %s in %.2f s", spec.name, spec.path, self._clock() - started)
        return loaded, tokenizer

    def _read_decoder(self, spec: ModelSpec) -> LoadedDecoder:
        return load_model(
            spec.path,
            self._kernels.kernels,
            dtype=spec.dtype,
            fmt=spec.weights,
            device=self.device,
            context_length=spec.context_length,
            keep_packed=self._settings.keep_quantized,
            adapter=spec.adapter,
            adapters=spec.adapters,
            progress=self._telling(spec),
            tensors=self._tensors,
        )

    def _telling(self, spec: ModelSpec) -> Callable[[int, int], None]:
        """Of how far the weights were read, where that takes long."""
        told = self._clock()

        def tell(layers: int, whole: int) -> None:
            nonlocal told
            if self._clock() - told >= _TELLING_S:
                told = self._clock()
                logger.info("loading %s: %d of %d layers", spec.name, layers, whole)

        return tell

    def _serve(
        self,
        spec: ModelSpec,
        loaded: LoadedDecoder,
        tokenizer: Tokenizer,
        blocks: int,
        states: int,
        per_token: int,
    ) -> tuple[Lane, LocalModel]:
        """`per_token`: bytes of all models' keys and values of a token each."""
        settings, decoder = self._settings, loaded.decoder
        context_length = _context_length(spec, loaded)
        # More than every running sequence at full length can never be used.
        blocks = min(blocks, settings.max_running * -(-context_length // settings.block_size))
        pages = self._block_bytes(spec, loaded).pages
        pages = pages if pages < blocks else 0
        if pages:
            told = spec.name, blocks, settings.block_size, pages
            logger.info("%s: %d blocks of %d tokens; layers that see a window have %d pages", *told)
        kept = kv_dtype(settings.kv_dtype, decoder.dtype)
        pictures = picture_reader(spec.path, decoder, tokenizer)
        tables, tiers = self._tables(spec, loaded, kept, blocks, pages, states, per_token, context_length)
        ahead = self._row_kernels is not None
        longest = tables.longest(context_length)

        def assemble(decoder: LanguageModel) -> Runner:
            if pictures is None:
                decoder.eyes = None
            elif decoder.eyes is None:
                raise CheckpointError(f"{spec.path}: its part that sees cannot be loaded again")
            record = recorder(self.device) if ahead else None
            sizes: Sequence[int] = ()
            if record is not None and settings.record_prompts:
                sizes = recorded_sizes(decoder, blocks, settings.block_size, settings.max_step_tokens)
            spare = spare_blocks(sizes, settings.block_size)
            store = KVStore(
                decoder.spec,
                blocks + spare + ahead,
                settings.block_size,
                kept,
                self.device,
                states,
                pages=pages,
                context_length=context_length,
            )
            prompts = None
            if sizes and record is not None and isinstance(decoder, Decoder):
                most = settings.max_running
                prompts = PromptSteps(decoder, store, sizes, most=most, longest=longest, record=record)
            return Runner(decoder, store, settings.block_size, self._ahead(decoder, store, longest, record), prompts)

        lane = Lane(
            Scheduler(tables, settings, tiers),
            assemble(decoder),
            context_length=context_length,
            eos_ids=tokenizer.eos_ids,
            clock=self._clock,
            adapters={name: facts.revision for name, facts in loaded.adapters.items()},
            lookup=settings.prompt_lookup and not ahead,
        )
        on_gpu = self.device.type == "cuda"
        sleeper = Sleeper(
            spec.name,
            lane,
            Parked(decoder) if on_gpu else ReadAgain(loaded, partial(self._read_decoder, replace(spec, adapters={}))),
            assemble,
            call=self._loop.call,
            device=partial(computing_on, self.device),
            clock=self._clock,
        )
        self._adapting[spec.name] = Adapting(
            spec.name,
            lane,
            sleeper,
            call=self._loop.call,
            running=lambda: self._loop.running,
            device=partial(computing_on, self.device),
        )
        self._loop.attach(spec.name, lane, sleeper.rouse, [*loaded.adapters])
        template = ChatTemplate.load(spec.path)
        info = model_info(
            spec, loaded, tokenizer, template, settings, context_length=lane.context_length, device=self.device
        )
        return lane, LocalModel(info, tokenizer, template, self._loop, sleeper, pictures)

    def _tables(
        self,
        spec: ModelSpec,
        loaded: LoadedDecoder,
        kept: torch.dtype,
        blocks: int,
        pages: int,
        states: int,
        per_token: int,
        context_length: int,
    ) -> tuple[KVTables, Tiers | None]:
        size, tiering, shares = self._settings.block_size, self._tiering, self._settings.prefix_cache
        remembers = bool(loaded.decoder.spec.state_shapes)
        if tiering is None or remembers:  # blocks alone are no use to a model that keeps states
            shape = loaded.decoder.spec
            seen = partial_window(shape.kv_windows, context_length) if pages else shape.window
            window = Window.of(
                None if remembers else seen,
                step=self._settings.max_step_tokens,
                block_size=size,
                blocks=pages or blocks,
                context_length=context_length,
            )
            key = secrets.token_bytes(32)
            slots = states if remembers else 0
            tables = kv_tables(
                blocks, size, key, prefix_cache=shares, dtype=str(kept), states=slots, window=window, pages=pages
            )
            return tables, None
        # Tiers have prefixes from their beginning on: blocks behind windows are kept for them.
        mark = tiering.mark(model_parts(spec.path, loaded, spec.weights, str(kept), size, self._kernels.why))
        tables = KVTables(blocks, size, tiering.key, dtype=f"{kept}{mark}")
        return tables, tiering.open(tables, mark, self._kv_bytes_per_token(loaded) * size, per_token * size)

    def _ahead(
        self, decoder: LanguageModel, store: KVStore, longest: int, record: Recorder | None
    ) -> AheadDecoder | None:
        if self._row_kernels is None or not decoder.steps_on_device:
            return None
        return AheadDecoder(
            decoder, store, self._row_kernels, most=self._settings.max_running, longest=longest, record=record
        )

    def _largest_steps(
        self, loaded: Iterable[tuple[ModelSpec, LoadedDecoder, Tokenizer]]
    ) -> Iterator[Callable[[], object]]:
        settings = self._settings
        for _, each, _ in loaded:
            kept = kv_dtype(settings.kv_dtype, each.decoder.dtype)
            yield partial(largest_step, each.decoder, settings, settings.block_size, kept)

    def _row_bytes(self, loaded: Iterable[tuple[ModelSpec, LoadedDecoder, Tokenizer]]) -> int:
        """What the rows of all models take beside keys and values."""
        if self._row_kernels is None:
            return 0
        settings, specs = self._settings, [each.decoder.spec for _, each, _ in loaded if each.decoder.steps_on_device]
        return sum(
            RowState.nbytes(settings.max_running, -(-s.context_length // settings.block_size), s.vocab_size)
            for s in specs
        )

    def _block_bytes(self, spec: ModelSpec, loaded: LoadedDecoder) -> BlockBytes:
        """Of a block of the model. Pages are for steps that the host lays out, and blocks that go to no tier."""
        settings, shape = self._settings, loaded.decoder.spec
        host = self.device.type == "cpu" and self._row_kernels is None
        return block_bytes(
            shape,
            kv_dtype(settings.kv_dtype, loaded.decoder.dtype),
            settings,
            settings.block_size,
            context_length=_context_length(spec, loaded),
            apart=host and self._tiering is None and not shape.state_shapes,
        )

    def _kv_bytes_per_token(self, loaded: LoadedDecoder) -> int:
        decoder = loaded.decoder
        return kv_bytes_per_token(decoder.spec, kv_dtype(self._settings.kv_dtype, decoder.dtype))


def _context_length(spec: ModelSpec, loaded: LoadedDecoder) -> int:
    """Most tokens of a sequence, whatever memory there is."""
    own = loaded.decoder.spec.context_length
    return min(spec.context_length or own, own)
