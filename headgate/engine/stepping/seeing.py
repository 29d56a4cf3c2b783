"""What a model's part that sees gave of pictures, kept as long as sequences are likely to want it."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from headgate.engine.errors import lacks_memory
from headgate.engine.models.eyes import Eyes, Given
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.text.picture_reader import PictureReader
from headgate.engine.text.pictures import Picture, Sight, turning
from headgate.engine.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

_TRIED = 61, 83
"""Height and width of the picture that a model is tried with, in pixels."""
_KEPT_BYTES = 256 << 20


class Seeing:
    """Rows of pictures by what these are. Only the step thread uses it."""

    def __init__(self, eyes: Eyes, most_bytes: int = _KEPT_BYTES) -> None:
        """`most_bytes`: of rows that are kept, those that the coming step needs aside."""
        self._eyes = eyes
        self._most_bytes = most_bytes
        self._rows: OrderedDict[bytes, Tensor] = OrderedDict()
        self._needed: set[bytes] = set()
        self.seconds = 0.0
        """In which pictures were looked at."""

    @property
    def nbytes(self) -> int:
        """Of what is kept."""
        return sum(rows.nbytes for rows in self._rows.values())

    def begin(self) -> None:
        """Nothing is needed of what is kept, until it is asked for again."""
        self._needed.clear()

    def has(self, sight: Sight) -> bool:
        """Whether its rows are there; they stay until the next `begin`."""
        if sight.digest not in self._rows:
            return False
        self._rows.move_to_end(sight.digest)
        self._needed.add(sight.digest)
        return True

    def look(self, sight: Sight) -> float:
        """Have its rows, until the next `begin` at least; gives the seconds that took.

        On an accelerator: until the work was done. Whatever the part that sees raises comes through.
        """
        started = time.perf_counter()
        rows = self._eyes.look(sight)
        if rows.device.type == "cuda":
            torch.cuda.synchronize(rows.device)
        self._rows[sight.digest] = rows
        self._needed.add(sight.digest)
        for digest in [each for each in self._rows if each not in self._needed]:
            if self.nbytes <= self._most_bytes:
                break
            del self._rows[digest]
        seconds = time.perf_counter() - started
        self.seconds += seconds
        return seconds

    def given(self, chunks: Seq[Chunk]) -> Given | None:
        """What pictures have to do with a step over these chunks, their rows all there; None where nothing."""
        if not any(map(differs, chunks)):
            return None
        places, rows, before = list[Tensor](), list[Tensor](), 0
        for chunk in chunks:
            for sight in wanted(chunk):
                at = torch.from_numpy(sight.places) + (sight.start - chunk.start)
                here = (at >= 0) & (at < chunk.count)
                of_it = self._rows[sight.digest]
                rows.append(of_it[here.to(of_it.device)])
                places.append(at[here] + before)
            before += chunk.count
        turns = None
        if any(map(_turns, chunks)):
            parts = [turning(c.sequence.request.sights, c.start, c.start + c.count) for c in chunks]
            turns = torch.from_numpy(np.concatenate(parts, axis=1)).to(self._eyes.device)
        limits = None
        if any(sight.whole for chunk in chunks for sight in wanted(chunk)):
            limits = torch.cat([_limits(chunk) for chunk in chunks])
        found = torch.cat(rows) if rows else self._eyes.nothing
        at = torch.cat(places) if places else torch.empty(0, dtype=torch.int64)
        return Given(at.to(found.device), found, turns, limits)


def wanted(chunk: Chunk) -> Iterator[Sight]:
    """The pictures of which a chunk has placeholders, in order."""
    start, stop, sights = chunk.start, chunk.start + chunk.count, chunk.sequence.request.sights
    if not sights or start >= sights[-1].stop:
        return
    for sight in sights:
        places = sight.places
        first = int(places.searchsorted(start - sight.start))
        if first < len(places) and places[first] + sight.start < stop:
            yield sight


def differs(chunk: Chunk) -> bool:
    """Whether its tokens do not say all that there is to compute of it."""
    return _turns(chunk) or any(True for _ in wanted(chunk))


def _turns(chunk: Chunk) -> bool:
    return any(sight.grid is not None for sight in chunk.sequence.request.sights)


def _limits(chunk: Chunk) -> Tensor:
    """See AttentionBatch."""
    start, stop = chunk.start, chunk.start + chunk.count
    limits = torch.arange(start + 1, stop + 1, dtype=torch.int32)
    for sight in wanted(chunk):
        if sight.whole:
            first, behind = sight.seen
            limits[max(0, first - start) : behind - start] = behind
    return limits


def picture_reader(folder: Path, decoder: LanguageModel, tokenizer: Tokenizer, most: int) -> PictureReader | None:
    """What reads pictures for a model that sees, once one was looked at; None, and it has no eyes, if that fails.

    `most`: tokens that a picture may have where a step has to compute all of it.
    """
    if decoder.eyes is None:
        return None
    try:
        reader = PictureReader.load(folder, tokenizer)
        pixels = np.arange(3 * _TRIED[0] * _TRIED[1]).astype(np.uint8).reshape(*_TRIED, 3)
        _, sight = reader.see(Picture(pixels, b""))
        if sight.whole and len(sight.places) > most:
            raise ValueError(
                f"a picture has {len(sight.places)} tokens, which one step has to compute; max_step_tokens less "
                f"max_running is {most}, and has to be no less"
            )
        with torch.inference_mode():
            finite = bool(decoder.eyes.look(sight).isfinite().all())
        if not finite:
            raise ValueError("what it sees of a picture is not finite")
    except Exception as error:
        if lacks_memory(error):
            raise
        decoder.eyes = None
        logger.warning("%s: text alone: %s: %s", folder, type(error).__name__, error)
        return None
    logger.info("%s: it sees pictures", folder)
    return reader
