"""Pictures as they come in requests, decoded for models of this process."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import weakref
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures_made import data_url, file_of, gradient, hollow_png
from PIL import Image

from headgate.engine.text.pictures import Picture as Decoded
from headgate.engine.text.pictures import Sight
from headgate.gateway.local.pictures import PictureDecoder, PictureLimits
from headgate.gateway.road.attachments import Picture
from headgate.gateway.wire.errors import ApiError

Looked = tuple[tuple[int, ...], tuple[Sight, ...]]
LIMITS = PictureLimits(4, 1_000_000, 1 << 20)
FORMATS = {"PNG": {}, "JPEG": {"quality": 90}, "WEBP": {"lossless": True}, "GIF": {}}


async def decoded(*files: bytes, detail: str | None = None, limits: PictureLimits | None = None) -> list[Decoded]:
    found: list[Decoded] = []

    async def look(pictures: Sequence[Decoded]) -> Looked:
        found.extend(pictures)
        return (), ()

    asked = [Picture(data_url(file), detail, f"messages[0].content[{at}]") for at, file in enumerate(files)]
    await PictureDecoder(limits or LIMITS).show(asked, look)
    return found


async def refused(*files: bytes, limits: PictureLimits | None = None) -> tuple[int, str | None, str | None]:
    with pytest.raises(ApiError) as caught:
        await decoded(*files, limits=limits)
    assert caught.value.param is not None
    assert caught.value.param in str(caught.value)
    return caught.value.status, caught.value.param, caught.value.code


async def test_what_large_pictures_took_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back = list[None]()
    monkeypatch.setattr("headgate.gateway.local.pictures.return_freed_memory", lambda: given_back.append(None))
    limits, half = PictureLimits(4, 5_000_000, 1 << 20), file_of(Image.new("1", (2000, 1100)))
    await decoded(half, limits=limits)
    assert not given_back
    await decoded(half, half, limits=limits)
    assert len(given_back) == 1
    await refused(half, half[:-60], limits=limits)
    assert len(given_back) == 2, "of damaged ones, too"


@pytest.mark.parametrize("form", FORMATS)
async def test_every_format_comes_out_as_it_went_in(form: str) -> None:
    image = gradient(40, 24)
    file = file_of(image, form, **FORMATS[form])
    (found,) = await decoded(file)
    assert (found.pixels.shape, found.pixels.dtype) == ((24, 40, 3), np.uint8)
    assert found.digest == hashlib.sha256(file).digest()
    off = np.abs(found.pixels.astype(int) - np.asarray(image).astype(int)).mean()
    assert off < {"JPEG": 6, "GIF": 12}.get(form, 0.001), "a GIF has 256 colours"


async def test_of_a_moving_picture_the_first_frame_is_seen() -> None:
    first, second = Image.new("RGB", (9, 9), "red"), Image.new("RGB", (9, 9), "blue")
    for form in ("GIF", "WEBP", "PNG"):
        (found,) = await decoded(file_of(first, form, save_all=True, append_images=[second]))
        assert found.pixels[4, 4, 0] > 200 > 50 > found.pixels[4, 4, 2], form


async def test_what_is_transparent_is_white() -> None:
    half = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    half.paste((0, 0, 255, 255), (0, 0, 2, 4))
    half.putpixel((3, 3), (0, 0, 0, 128))
    palette = half.convert("P", palette=Image.Palette.ADAPTIVE)
    grey = Image.new("LA", (4, 4), (0, 0))
    for file in (file_of(half), file_of(half, "WEBP", lossless=True), file_of(half, "GIF")):
        (found,) = await decoded(file)
        assert found.pixels[0, 3].tolist() == [255, 255, 255]
        assert found.pixels[0, 0].tolist() == [0, 0, 255]
    (mixed,) = await decoded(file_of(half))
    assert mixed.pixels[3, 3].tolist() == [127, 127, 127], "half of it"
    for file in (file_of(palette, transparency=palette.getpixel((3, 0))), file_of(grey)):
        (found,) = await decoded(file)
        assert found.pixels[0, 3].tolist() == [255, 255, 255]


async def test_greys_palettes_and_inks_become_colours() -> None:
    deep = Image.fromarray(np.array([[0, 0x1234, 0xFFFF]], np.uint16))
    (found,) = await decoded(file_of(deep))
    assert found.pixels[0].tolist() == [[0, 0, 0], [0x12, 0x12, 0x12], [0xFF, 0xFF, 0xFF]], "16 bits to the upper 8"
    (found,) = await decoded(file_of(Image.new("1", (8, 8), 1)))
    assert found.pixels[0, 0].tolist() == [255, 255, 255]
    (found,) = await decoded(file_of(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=100))
    assert np.abs(found.pixels[4, 4].astype(int) - [255, 0, 0]).max() < 12
    (found,) = await decoded(file_of(Image.new("L", (8, 8), 77)))
    assert found.pixels[0, 0].tolist() == [77, 77, 77]


async def test_a_camera_held_sideways_shows_upright_pictures() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    for form in ("JPEG", "PNG", "WEBP"):
        (found,) = await decoded(file_of(gradient(32, 16), form, exif=exif))
        assert found.pixels.shape == (32, 16, 3)
        # What was below on the left is above on the left now.
        assert found.pixels[1, 1, 1] > 200 > 60 > found.pixels[1, 14, 1], form
    whole = file_of(gradient(32, 16), "JPEG", exif=b"Exif\x00\x00nonsense")
    assert (await decoded(whole))[0].pixels.shape == (16, 32, 3), "notes that nobody can read turn nothing"


@pytest.mark.parametrize("form", FORMATS)
async def test_with_little_detail_a_large_picture_is_a_small_one(form: str) -> None:
    file = file_of(gradient(1200, 300), form, **FORMATS[form])
    (small,), (whole,) = await decoded(file, detail="low"), await decoded(file)
    assert small.pixels.shape == (128, 512, 3)
    assert whole.pixels.shape == (300, 1200, 3)
    assert small.digest != whole.digest, "by which the other would be found"
    little = file_of(gradient(512, 8))
    assert (await decoded(little, detail="low"))[0].digest == (await decoded(little))[0].digest
    assert (await decoded(file, detail="high"))[0].digest == whole.digest


async def test_limits_are_of_all_pictures_together_and_hold_before_any_is_decoded() -> None:
    file = file_of(gradient(10, 10))
    limits = PictureLimits(3, 250, 1 << 20)
    assert len(await decoded(file, file, limits=limits)) == 2
    too_large = (400, "messages[0].content[2]", "image_too_large")
    assert await refused(file, file, file, limits=limits) == too_large
    assert await refused(*[file] * 4, limits=limits) == (400, "messages[0].content[3]", "too_many_images")
    # They say more than anybody has memory for, and are too short to be that: nobody gets to see that.
    for size in ((1001, 1000), (9000, 9000), (60_000, 60_000), (2**31 - 1, 2**31 - 1)):
        bomb = (400, "messages[0].content[0]", "image_too_large")
        assert await refused(hollow_png(*size)) == bomb, size


@pytest.mark.parametrize("form", FORMATS)
async def test_damaged_files_are_told_by_their_place(form: str) -> None:
    good = file_of(gradient(64, 64), form, **FORMATS[form])
    damaged = (400, "messages[0].content[1]", "image_parse_error")
    for bad in (good[: len(good) * 2 // 3], good[: len(good) // 3]):
        assert await refused(good, bad) == damaged


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"no picture at all",
        b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>",
        b"%PDF-1.4 ...",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        file_of(gradient(8, 8), "BMP"),
        file_of(gradient(8, 8), "TIFF"),
        file_of(gradient(8, 8), "PNG")[:20],
    ],
)
async def test_other_files_are_no_pictures(file: bytes) -> None:
    status, param, code = await refused(file)
    assert (status, param) == (400, "messages[0].content[0]")
    assert code in ("invalid_image_format", "image_parse_error")


@settings(max_examples=60)
@given(
    form=st.sampled_from(sorted(FORMATS)),
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.integers(0, 40),
)
def test_whatever_a_file_holds_is_seen_or_refused(form: str, changes: list[tuple[int, int]], cut: int) -> None:
    file = bytearray(file_of(gradient(16, 12), form, **FORMATS[form]))
    for at, value in changes:
        file[at % len(file)] = value
    try:
        (found,) = asyncio.run(decoded(bytes(file[: len(file) - cut])))
    except ApiError as error:
        told = error.status, error.param
    else:
        assert found.pixels.dtype == np.uint8
        assert found.pixels.shape[2] == 3
        assert 0 < found.pixels.size <= 3_000_000
        return
    assert told == (400, "messages[0].content[0]")


async def test_two_requests_are_looked_at_together_and_who_leaves_keeps_his_turn() -> None:
    reader, go = PictureDecoder(LIMITS), asyncio.Event()
    file = Picture(data_url(file_of(gradient(4, 4))), None, "messages[0].content[0]")
    two, running, most = asyncio.Event(), 0, 0

    async def look(_: Sequence[Decoded]) -> Looked:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            two.set()
        await go.wait()
        running -= 1
        return (1, 2), ()

    asking = [asyncio.create_task(reader.show([file], look)) for _ in range(4)]
    async with asyncio.timeout(20):
        await two.wait()
    asking[0].cancel()
    await asyncio.wait([asking[0]])
    assert running == 2, "its thread goes on, and so has its place"
    go.set()
    assert [tokens for tokens, _ in await asyncio.gather(*asking[1:])] == [(1, 2)] * 3
    assert most == 2


async def test_pixels_are_forgotten_once_seen_and_what_is_seen_once_nobody_has_it() -> None:
    decoder, kept = PictureDecoder(PictureLimits(4, 1_000_000, 2 * 4096)), list[weakref.ref[object]]()

    async def look(pictures: Sequence[Decoded]) -> Looked:
        kept.extend(weakref.ref(picture.pixels) for picture in pictures)
        features, places = {"pixel_values": torch.zeros(1024)}, np.array([0])
        return (7,), tuple(Sight(0, 1, picture.digest, features, places) for picture in pictures)

    file = Picture(data_url(file_of(gradient(64, 64))), None, "messages[0].content[0]")
    _, one = await decoder.show([file], look)
    _, other = await decoder.show([file], look)
    assert decoder.nbytes == one.nbytes + other.nbytes == 2 * 4096
    with pytest.raises(ApiError, match="Too many pictures") as caught:
        await decoder.show([file], look)
    assert (caught.value.status, caught.value.code, len(kept)) == (503, "overloaded", 2)
    del one
    assert decoder.nbytes == 4096
    await decoder.show([file], look)
    await asyncio.sleep(0)  # the loop holds what woke us for as long as we run
    gc.collect()
    assert (decoder.nbytes, [pixels() for pixels in kept]) == (4096, [None] * 3)
