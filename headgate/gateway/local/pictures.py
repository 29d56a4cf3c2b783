"""Pictures of requests as models of this process see them: from files to pixels, a few requests at a time.

Pillow reads PNG, JPEG, WebP and GIF, of which the first frame, and is offered nothing else. What a file's head says of
its size is held against the limit before any of it is decoded.
"""

from __future__ import annotations

import asyncio
import binascii
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from typing import TYPE_CHECKING
from weakref import WeakSet

import msgspec
import numpy as np

from headgate.engine.models.loader import return_freed_memory
from headgate.engine.text.pictures import Picture as Decoded
from headgate.engine.text.pictures import Sight
from headgate.gateway.edge.long_bodies import one_by_one
from headgate.gateway.road.attachments import Picture
from headgate.gateway.settings import ServerSettings
from headgate.gateway.wire.errors import ApiError, invalid, overloaded

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

LOW_DETAIL = 512
"""Pixels of the longer side, at most, of a picture that is to be looked at with `detail: low`."""
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_AT_ONCE = 2
"""Requests whose pictures are held as pixels side by side."""
_LARGE = 4_000_000
"""Pixels of a request from which on what they took goes back to the system, in some hundredths of the time that
decoding takes. The allocator would keep it, for each of the threads.
"""


@dataclass(frozen=True, slots=True)
class PictureLimits:
    """What of pictures one request may have, `pixels` of all of them together, and all requests in memory."""

    pictures: int
    pixels: int
    nbytes: int

    @classmethod
    def of(cls, section: ServerSettings) -> PictureLimits:
        """Those of the configuration."""
        return cls(section.max_pictures, section.max_pixels, int(section.max_picture_bytes))


class Shown(msgspec.Struct, frozen=True, weakref=True, eq=False):
    """The pictures of a prompt as its model takes them. They are in memory as long as somebody has it."""

    sights: tuple[Sight, ...]
    nbytes: int

    @classmethod
    def of(cls, sights: tuple[Sight, ...]) -> Shown:
        """These, with what they take."""
        return cls(sights, sum([tensor.nbytes for sight in sights for tensor in sight.features.values()]))


Look = Callable[[Sequence[Decoded]], Awaitable[tuple[tuple[int, ...], tuple[Sight, ...]]]]
"""A prompt's tokens and sights, with these pictures."""


class PictureDecoder:
    """Decodes the pictures of requests, for whichever model. Belongs to one event loop."""

    def __init__(self, limits: PictureLimits) -> None:
        self._limits = limits
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._held: WeakSet[Shown] = WeakSet()

    @property
    def nbytes(self) -> int:
        """What pictures take that were shown to models and whose requests are not at their end."""
        return sum([shown.nbytes for shown in self._held])

    async def show(self, pictures: Sequence[Picture], look: Look) -> tuple[tuple[int, ...], Shown]:
        """A prompt's tokens and what a model sees in it, by `look`, after which the pixels are forgotten.

        ApiError 400 by its place for the first that is broken, of another format, or beyond a limit, 503 where others
        have all memory that there is for pictures.
        """
        most = self._limits.pictures
        if len(pictures) > most:
            place = pictures[most].place
            message = f"Invalid '{place}': a request may have at most {most} pictures, and has {len(pictures)}."
            raise invalid(message, place, "too_many_images")

        async def looked() -> tuple[tuple[int, ...], Shown]:
            if self.nbytes >= self._limits.nbytes:
                raise overloaded("Too many pictures wait to be looked at.")
            sizes = list[int]()
            try:
                tokens, sights = await look(await asyncio.to_thread(self._decoded, pictures, sizes))
            finally:
                if sum(sizes) >= _LARGE:
                    await asyncio.to_thread(return_freed_memory)
            self._held.add(shown := Shown.of(sights))
            return tokens, shown

        return await one_by_one(self._turns, looked)

    def _decoded(self, pictures: Sequence[Picture], sizes: list[int]) -> list[Decoded]:
        """All of them. `sizes`: takes the pixels of each one's file, before it is decoded."""
        decoded = []
        for picture in pictures:
            try:
                decoded.append(self._read(picture, sizes))
            except (ApiError, MemoryError):
                raise
            except Exception:  # damaged files make decoders fail in any way; what they say may quote the data
                message = f"Invalid '{picture.place}': the picture is damaged or cut off."
                raise invalid(message, picture.place, "image_parse_error") from None
        return decoded

    def _read(self, picture: Picture, sizes: list[int]) -> Decoded:
        data = binascii.a2b_base64(picture.url[picture.url.index(",") + 1 :])
        shown = self._shown(data, picture.place, sizes, low=picture.detail == "low")
        digest = sha256(data)
        if shown.width * shown.height < sizes[-1]:
            # Who knows it by its digest is not to take it for the whole one.
            digest.update(b"low")
        return Decoded(np.array(shown), digest.digest())

    def _shown(self, data: bytes, place: str, sizes: list[int], *, low: bool) -> Image:
        """A file's picture, made small where it is `low`."""
        with self._opened(data, place) as image:
            pixels = image.width * image.height
            if sum(sizes) + pixels > self._limits.pixels:
                raise self._too_large(place, f"{image.width} × {image.height}")
            sizes.append(pixels)
            if low:
                # Of a JPEG not more than is needed is decoded; others have no such way.
                image.draft("RGB", (LOW_DETAIL, LOW_DETAIL))
            shown = _in_rgb(image)
        if low:
            shown.thumbnail((LOW_DETAIL, LOW_DETAIL))
        return shown

    def _opened(self, data: bytes, place: str) -> ImageFile:
        """A file whose head has been read."""
        # Not at the top: no model sees where Pillow is not installed.
        from PIL import GifImagePlugin, Image, JpegImagePlugin, PngImagePlugin, UnidentifiedImageError, WebPImagePlugin  # noqa: F401

        try:
            return Image.open(BytesIO(data), formats=_FORMATS)
        except UnidentifiedImageError:
            message = f"Invalid '{place}': no picture that can be read. Expected a PNG, JPEG, WebP or GIF file."
            raise invalid(message, place, "invalid_image_format") from None
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            raise self._too_large(place, "more pixels than are ever decoded") from None

    def _too_large(self, place: str, size: str) -> ApiError:
        message = (
            f"Invalid '{place}': the picture is too large ({size}). The pictures of a request may have "
            f"{self._limits.pixels} pixels together."
        )
        return invalid(message, place, "image_too_large")


def _in_rgb(image: ImageFile) -> Image:
    """The picture upright, and on white where it is transparent."""
    from PIL import Image, ImageOps

    image.load()
    with suppress(Exception):  # what cannot be read of a camera's notes turns nothing
        ImageOps.exif_transpose(image, in_place=True)
    if image.mode.startswith("I"):  # 16 bits of grey, which Pillow would cut off at 255
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    colours = image if image.mode == "RGBA" else image.convert("RGBA")
    shown = Image.new("RGB", colours.size, "white")
    shown.paste(colours, mask=colours)
    return shown
