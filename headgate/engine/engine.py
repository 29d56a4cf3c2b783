"""The engine as the rest of the product sees it: load models, start, stream from them, stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

from headgate.engine.assembling.assembly import Assembly
from headgate.engine.assembling.describing import adapted_info
from headgate.engine.assembling.dividing import divide
from headgate.engine.assembling.drafting import have_drafted
from headgate.engine.assembling.reading import Reader, ReadModel
from headgate.engine.assembling.tiering import Tiering
from headgate.engine.assembling.trial import Shapes, proved
from headgate.engine.cpu_time import bounded_threads
from headgate.engine.device import computing_on, open_device
from headgate.engine.errors import ModelsTooLarge, UnknownArchitecture, UnknownModel, lacks_memory
from headgate.engine.front.local import LocalModel
from headgate.engine.kernels.choice import choose_kernels, row_kernels
from headgate.engine.kernels.interface import AttentionShape
from headgate.engine.kv.store import kv_dtype
from headgate.engine.lane import Lane
from headgate.engine.lanes.adapting import Adapting
from headgate.engine.loop import Listener, StepLoop
from headgate.engine.models.decoder import Decoder
from headgate.engine.models.loader import computed_in
from headgate.engine.models.opening import folder_tensors, open_checkpoint
from headgate.engine.models.weights.tensors import Tensors
from headgate.engine.request import Request
from headgate.engine.settings import EngineSettings, ModelSpec

logger = logging.getLogger(__name__)


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
        reader = Reader(self._kernels.kernels, self.device, settings.keep_quantized, self._tensors, self._clock)
        # torch's operators leave a pool of OpenMP workers behind in every thread that runs them. With more workers than
        # cores OpenMP stops spinning and every parallel operator of the step thread pays for waking them, which
        # small models feel most. A thread that ends takes its pool along.
        with ThreadPoolExecutor(1, thread_name_prefix="load") as loading:
            models = [*loading.map(reader.read, specs)]
        with computing_on(self.device):
            self._try_out(models)
            self._serve(models, reader)

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

    def _try_out(self, models: Iterable[ReadModel]) -> None:
        for model in models:
            if not isinstance(model.decoder, Decoder):
                continue  # a guest was tried as a whole
            spec, dtype = model.decoder.spec, model.decoder.dtype
            if kv_dtype(self._settings.kv_dtype, dtype) == dtype:
                shape = AttentionShape(spec.heads, spec.kv_heads, spec.head_dim, dtype, self._settings.block_size)
                self._kernels.kernels.try_out(shape, spec.layers, self.device)

    def _serve(self, models: Sequence[ReadModel], reader: Reader) -> None:
        rows, tiering = self._row_kernels, self._tiering
        shares = divide(models, self._settings, self.device, ahead=rows is not None, tiered=tiering is not None)
        assembly = Assembly(
            self._settings,
            self.device,
            self._loop,
            reader,
            kernels=self._kernels.why,
            rows=rows,
            tiering=tiering,
            clock=self._clock,
        )
        lanes = dict[str, Lane]()
        for model, share in zip(models, shares, strict=True):
            name, served = model.spec.name, assembly.assemble(model, share)
            lanes[name], self._adapting[name] = served.lane, served.adapting
            self._models[name] = self._lanes[name] = served.local
            for adapter, facts in model.loaded.adapters.items():
                self._models[adapter] = served.local.adapted(adapted_info(served.local.info, adapter, facts))
        have_drafted(models, lanes)
