"""Pictures, sound and files on the wire, whichever protocol they came in: checked, never opened."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from msgspec import Struct

from headgate.gateway.road.attachments import Document, Picture, Sound
from headgate.gateway.wire.errors import ApiError, given, invalid, one_of, unsupported

DETAILS = ("auto", "low", "high", "original")
FORMATS = ("wav", "mp3", "flac", "ogg", "opus", "aac", "m4a", "aiff", "webm", "pcm16", "pcm24")

_DATA_URL = re.compile(r"data:([a-z]+/[\w.+-]+)(?:;[\w-]+=[\w.+-]+)*;base64,", re.IGNORECASE | re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_SHOWN = 24
"""Characters of a wrong value that an error repeats: what was meant is seen by its beginning."""


class SoundBody(Struct, forbid_unknown_fields=True):
    """A recording in base64."""

    data: str
    format: str


def picture(url: str | None, detail: str | None, path: str, place: str) -> Picture:
    """A picture at the URL that stands at `path`; ApiError 400 for what is none. `place`: of the whole part."""
    url = given(url, path)
    if url[:5].lower() == "data:":
        _check_data(url, "image/", "a picture", path)
    elif not _fetchable(url):
        raise _wrong(url, "an http(s) URL or a picture's data URL such as 'data:image/png;base64,…'", path)
    return Picture(url, detail, place)


def encoded_picture(media_type: str | None, data: str | None, path: str, place: str) -> Picture:
    """A picture whose data and type stand apart at `path`."""
    kind = given(media_type, f"{path}.media_type")
    if not re.fullmatch(r"image/[\w.+-]+", kind, re.ASCII):
        raise _wrong(kind, "a type of pictures such as 'image/png'", f"{path}.media_type")
    _check_base64(given(data, f"{path}.data"), 0, f"{path}.data")
    return Picture(f"data:{kind};base64,{data}", None, place)


def sound(wire: SoundBody | None, place: str) -> Sound:
    """A recording; ApiError 400 for data that is no base64, or an unknown format."""
    path = f"{place}.input_audio"
    body = given(wire, path)
    one_of(f"{path}.format", body.format, FORMATS)
    if body.data[:5].lower() == "data:":
        raise _wrong(body.data, "base64 alone", f"{path}.data")
    _check_base64(body.data, 0, f"{path}.data")
    return Sound(body.data, body.format, place)


def document(data: str | None, name: str | None, path: str, place: str) -> Document:
    """A file's data at `path`, base64 with or without what makes it a data URL."""
    data = given(data, path)
    if data[:5].lower() == "data:":
        _check_data(data, "", "a file", path)
    else:
        _check_base64(data, 0, path)
    return Document(data, name, place)


def no_file_id(file_id: object, path: str, instead: str) -> None:
    """ApiError 400 for the id of a file: those of this server are batches', and no other server knows them."""
    if file_id is not None:
        message = f"'{path}' is not supported: other servers know none of this server's files. Give '{instead}'."
        raise unsupported(path, message)


def _check_data(url: str, family: str, what: str, path: str) -> None:
    head = _DATA_URL.match(url)
    if head is None or not head[1].lower().startswith(family):
        example = f"data:{family or 'application/'}{'png' if family else 'pdf'};base64,…"
        raise _wrong(url, f"{what}'s data URL such as '{example}'", path)
    _check_base64(url, head.end(), path)


def _check_base64(text: str, start: int, path: str) -> None:
    # By its letters and its length: decoding megabytes only to see that it can be done would take twice as long.
    if (len(text) - start) % 4 or _BASE64.fullmatch(text, start) is None:
        message = (
            f"Invalid '{path}': not base64. Expected letters, digits, '+' and '/', padded with '=', and no others."
        )
        raise invalid(message, path, "invalid_base64")


def _fetchable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return known and url.isprintable() and " " not in url


def _wrong(value: str, accepted: str, path: str) -> ApiError:
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
    return invalid(f"Invalid '{path}': '{shown}'. Expected {accepted}.", path, "invalid_value")
