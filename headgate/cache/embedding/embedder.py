"""Texts to vectors, off the event loop and in small batches."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from headgate.cache.embedding.comparator import Comparator
from headgate.cache.embedding.sentence_model import SentenceModel, Vector, identity

_Known = tuple[Vector, bytes]
_Key = tuple[str, str]
_BEGUN_S = 0.0005
"""Seconds at most that are waited for the worker thread to begin."""


class Embedder(Protocol):
    """Gives each text a unit vector whose cosine with another says how close the two texts are."""

    @property
    def name(self) -> str:
        """Which model it is; vectors of different names do not compare."""
        ...

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        ...

    async def embed(self, text: str, scope: str = "") -> Vector:
        """The vector `[dim]` of a text, float32, unit norm. What one scope's texts cost tells no other scope.

        An embedder may begin before it is awaited."""
        ...

    async def sketch(self, text: str, scope: str = "") -> bytes:
        """The text's wordpieces as `Comparator.pack` gives them, from the pass that makes the vector; empty where
        there is no comparator for the model, or the text is too long or has what the model does not know."""
        ...


class BatchEmbedder(Embedder, Protocol):
    """One that takes several texts at once."""

    async def embed_all(self, texts: Sequence[str], scope: str = "") -> list[Vector]:
        """The vectors of texts, in one pass as far as they are not known; else as `embed`."""
        ...


class SentenceEmbedder:
    """Implements `Embedder` with a sentence-transformers model on a worker thread of its own.

    Texts that arrive while the model is busy go together into the next batch. Equal texts are computed once.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        comparator: Comparator | None = None,
        cache_size: int = 4096,
        max_batch: int = 32,
    ) -> None:
        """An embedder that is not loaded yet.

        Args:
            model: a folder, or a name that sentence-transformers resolves (it obeys `HF_HUB_OFFLINE`).
            comparator: makes the sketches, if it was fitted on this model's states.
            cache_size: vectors and sketches remembered by text, the least recently used leaves first.
            max_batch: texts per forward pass.
        """
        if cache_size < 0:
            raise ValueError(f"cache_size is {cache_size}; 0 or more is accepted")
        if max_batch < 1:
            raise ValueError(f"max_batch is {max_batch}; 1 or more is accepted")
        self._source = str(model)
        self._cache_size = cache_size
        self._max_batch = max_batch
        self._comparator = comparator
        self._model: SentenceModel | None = None
        self._dim = 0
        self._name = self._source
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedder", initializer=_compute_on_one_core)
        # By scope and text: were they shared, a text's quick answer would tell that another tenant has asked it.
        self._cache: OrderedDict[_Key, _Known] = OrderedDict()
        self._pending: dict[_Key, asyncio.Future[_Known]] = {}
        # The worker thread takes from the queue by itself. Were it handed each batch, it would stand still while the
        # loop is busy with what the last one gave.
        self._lock = threading.Lock()
        self._queue: deque[_Key] = deque()
        self._busy = False
        """The worker thread will look at the queue again."""

    @property
    def name(self) -> str:
        """What tells its vectors from another model's: a digest of the folder's files, so that it is the same wherever
        the folder lies; for a model from a hub its name. Known after `load`."""
        self._loaded()
        return self._name

    @property
    def dim(self) -> int:
        """Length of the vectors; known after `load`."""
        self._loaded()
        return self._dim

    @property
    def kind(self) -> str:
        """What computes the vectors; known after `load`."""
        return self._loaded().kind

    async def load(self) -> None:
        """Read the model and run it once, on the worker thread.

        Raises:
            ValueError: the folder or name holds no sentence-transformers model; the cause says why.
        """
        loop = asyncio.get_running_loop()
        try:
            self._model = await loop.run_in_executor(self._thread, self._open)
        except Exception as error:
            raise ValueError(f"the embedding model {self._source!r} could not be loaded: {error}") from error
        self._name = await loop.run_in_executor(self._thread, identity, self._source)
        # The first pass allocates; better now than under the first request. Its length is what counts.
        probe = await loop.run_in_executor(self._thread, self._model.encode, ["ready"])
        self._dim = len(probe[0][0])

    def embed(self, text: str, scope: str = "") -> Coroutine[Any, Any, Vector]:
        """The vector `[dim]` of a text, float32, unit norm, read-only. Long texts are cut at the model's limit.

        The text is handed over at once: who has something else to do awaits what this gives when it is done.

        Args:
            text: the text.
            scope: whose it is; what is remembered or being computed for one scope serves that scope alone.

        Raises:
            RuntimeError: the model is not loaded.
        """
        return _first(self._known((scope, text)))

    async def embed_all(self, texts: Sequence[str], scope: str = "") -> list[Vector]:
        """The vectors of texts, in their order; those that are not known go into one pass, up to `max_batch`.

        Raises:
            RuntimeError: the model is not loaded.
        """
        asked = self._all_known([(scope, text) for text in texts])
        return [vector for vector, _ in await asyncio.gather(*asked)]

    async def sketch(self, text: str, scope: str = "") -> bytes:
        """The text's packed `Sketch`; empty without a comparator, for a text of too many wordpieces, and for one with
        a word that the model's vocabulary lacks.

        Raises:
            RuntimeError: the model is not loaded.
        """
        return (await self._known((scope, text)))[1]

    def _known(self, key: _Key) -> Awaitable[_Known]:
        return self._all_known([key])[0]

    def _all_known(self, keys: Sequence[_Key]) -> list[Awaitable[_Known]]:
        self._loaded()
        new = [key for key in dict.fromkeys(keys) if key not in self._cache and key not in self._pending]
        for key in new:
            future = self._pending[key] = asyncio.get_running_loop().create_future()
            # Looked at here, so that an error whose callers have all left makes no noise.
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
        # Before the worker thread is woken, which may fail and take what waits along.
        asked = [self._awaited(key) for key in keys]
        if new:
            with self._lock:
                self._queue.extend(new)
                idle, self._busy = not self._busy, True
            if idle:
                self._wake()
        return asked

    def _awaited(self, key: _Key) -> Awaitable[_Known]:
        known = self._cache.get(key)
        if known is not None:
            self._cache.move_to_end(key)
            return _given(known)
        # Shielded: one caller that leaves must not take the vector from the others.
        return asyncio.shield(self._pending[key])

    @property
    def longest(self) -> int:
        """Tokens that are read of a text, the marks at its ends included; known after `load`."""
        return self._loaded().longest

    def lengths(self, texts: Sequence[str], *, cut: bool = False) -> list[int]:
        """Tokens of each text, the marks at its ends included, however long it is; with `cut` those that are read of
        it, which takes no longer for megabytes. From any thread, after `load`."""
        return self._loaded().lengths(texts, cut=cut)

    async def passages(self, texts: Sequence[str]) -> tuple[list[Vector], float]:
        """The vectors of these texts, in one pass that waits for those of `embed` which were asked before, and the
        seconds that it took without the wait. Nothing of it is remembered.

        Raises:
            RuntimeError: the model is not loaded, or the embedder is closed.
        """
        self._loaded()
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._timed, list(texts))

    async def close(self) -> None:
        """Finish what is queued and end the worker thread; one that still reads the model is not waited for."""
        while self._pending:
            await asyncio.wait(self._pending.values())
        self._thread.shutdown(wait=self._dim > 0)

    def _wake(self) -> None:
        """Have the worker thread look at the queue."""
        loop = asyncio.get_running_loop()
        # Held until its pass runs, which needs no interpreter.
        begun = threading.Lock()
        begun.acquire()
        try:
            self._thread.submit(self._work, loop, begun.release)
        except RuntimeError as error:
            # The thread is gone. Nobody may wait for ever.
            self._busy = False
            self._queue.clear()
            self._fail(list(self._pending), error)
        else:
            # Else this thread would go on with what it has to do, and keep the interpreter from the other.
            begun.acquire(timeout=_BEGUN_S)

    def _give(self, keys: list[_Key], made: list[_Known]) -> None:
        """Hand out what the worker thread has made."""
        for key, known in zip(keys, made, strict=True):
            self._remember(key, known)
            future = self._pending.pop(key)
            if not future.done():
                future.set_result(known)

    def _fail(self, keys: list[_Key], error: BaseException) -> None:
        for key in keys:
            future = self._pending.pop(key)
            if not future.done():
                future.set_exception(error)

    @property
    def remembered(self) -> tuple[int, float]:
        """How many texts, and what part of the most that is."""
        return len(self._cache), len(self._cache) / self._cache_size if self._cache_size else 0.0

    def _remember(self, key: _Key, known: _Known) -> None:
        known[0].flags.writeable = False
        if self._cache_size == 0:
            return
        self._cache[key] = known
        if len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)

    def _loaded(self) -> SentenceModel:
        if self._model is None:
            raise RuntimeError(f"the embedding model {self._source!r} is not loaded; await load() first")
        return self._model

    def _open(self) -> SentenceModel:
        return SentenceModel(self._source, self._comparator, self._max_batch)

    # The worker thread's.

    def _work(self, loop: asyncio.AbstractEventLoop, begun: Callable[[], None] | None) -> None:
        """Compute what waits, batch after batch, until nothing does."""
        while keys := self._next():
            try:
                made = self._loaded().encode([text for _, text in keys], begun)
            except Exception as error:
                loop.call_soon_threadsafe(self._fail, keys, error)
            else:
                loop.call_soon_threadsafe(self._give, keys, made)
            begun = None

    def _next(self) -> list[_Key]:
        with self._lock:
            keys = [self._queue.popleft() for _ in range(min(len(self._queue), self._max_batch))]
            self._busy = bool(keys)
        return keys

    def _timed(self, texts: list[str]) -> tuple[list[Vector], float]:
        began = time.monotonic()
        return self._loaded().vectors(texts), time.monotonic() - began


async def _first(known: Awaitable[_Known]) -> Vector:
    return (await known)[0]


async def _given(known: _Known) -> _Known:
    return known


def _compute_on_one_core() -> None:
    """Keep this thread's operators off the cores that the engine computes on: two thread pools fight over them."""
    from threadpoolctl import threadpool_limits

    # OpenMP's limit belongs to the calling thread; torch.set_num_threads would also change every other thread's.
    threadpool_limits(limits=1, user_api="openmp")
