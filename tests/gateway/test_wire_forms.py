"""Forms read and written anew, and what is not taken for one."""

from __future__ import annotations

import asyncio
from email.message import Message
from typing import Any

import pytest
from aiohttp import BodyPartReader, MultipartReader, StreamReader
from aiohttp.base_protocol import BaseProtocol
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from headgate.gateway.wire.errors import ApiError
from headgate.gateway.wire.forms import Part, read_form, write_form

FORM = "multipart/form-data; boundary=b"
# A `/` that a name begins with is left out, as of the path of a file; of several `;` aiohttp finds no name.
names = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters='"\\/;'), min_size=1, max_size=8)
parts = st.lists(
    st.builds(
        lambda name, value, filename: Part(name, memoryview(value), filename, None if filename is None else "a/b"),
        names,
        st.binary(max_size=40) | st.sampled_from([b"\r\n--b", b"--b--", b"\r\n", b""]),
        st.none() | names,
    ),
    max_size=4,
)


def joined(given: list[Part]) -> tuple[str, bytes]:
    kind, pieces = write_form(given)
    return kind, b"".join(pieces)


@given(parts)
def test_what_is_written_is_read_as_it_was(written: list[Part]) -> None:
    assert [_plain(part) for part in read_form(*joined(written))] == [_plain(part) for part in written]


@given(parts)
def test_others_read_it_too(written: list[Part]) -> None:
    kind, body = joined(written)

    async def read() -> list[Any]:
        stream = StreamReader(BaseProtocol(asyncio.get_running_loop()), 2**16)
        stream.feed_data(body)
        stream.feed_eof()
        found = []
        reader = MultipartReader(CIMultiDict({"Content-Type": kind}), stream)
        while (part := await reader.next()) is not None:
            assert isinstance(part, BodyPartReader)
            found.append((part.name, bytes(await part.read()), part.filename))
        return found

    assert asyncio.run(read()) == [_plain(part)[:3] for part in written]


def test_readers_who_know_escapes_find_no_other_name() -> None:
    head = b"Content-Disposition: form-data; name=\"x\\\"; filename*=UTF-8''%3B%20name%3Dmodel%3B%20y%3D%5C"
    _, body = joined(read_form(FORM, b"--b\r\n" + head + b"\r\n\r\nother\r\n--b--"))
    told = Message()
    told["content-disposition"] = body.split(b"\r\n")[1].decode().partition(": ")[2]
    assert told.get_params(header="content-disposition") == [
        ("form-data", ""),
        ("name", "x%5C"),
        ("filename", "; name=model; y=%5C"),
    ]


def _plain(part: Part) -> tuple[str, bytes, str | None, str | None]:
    return part.name, bytes(part.value), part.filename, part.kind


def field(head: str, value: str = "x") -> bytes:
    return f"--b\r\n{head}\r\n\r\n{value}\r\n".encode()


NAMED = 'Content-Disposition: form-data; name="model"'


def test_names_of_files_may_have_semicolons() -> None:
    (part,) = read_form(FORM, field(f'{NAMED}; filename="a; b; c=d;.wav"') + b"--b--")
    assert (part.name, part.filename) == ("model", "a; b; c=d;.wav")


def test_an_empty_line_before_the_first_boundary_is_none_of_the_form() -> None:
    read = [read_form(FORM, before + field(NAMED) + b"--b--") for before in (b"", b"\r\n")]
    assert [[_plain(part) for part in parts] for parts in read] == [[("model", b"x", None, None)]] * 2


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        ("multipart/form-data", field(NAMED), "no boundary"),
        (f"multipart/form-data; boundary={'b' * 71}", field(NAMED), "no boundary"),
        (FORM, b"", "does not begin with its boundary"),
        (FORM, b"preamble\r\n" + field(NAMED) + b"--b--", "does not begin with its boundary"),
        (FORM, field(NAMED), "ends within a part"),
        (FORM, field(NAMED) + b"--bc--", "something is behind a boundary"),
        (FORM, field(NAMED)[:-2], "ends within a part"),
        (FORM, b"--b\r\nContent-Disposition: x\r\n--b--", "no end of its headers"),
        (FORM, field("x" * 9000 + ": y") + b"--b--", "no end of its headers"),
        (FORM, field("Content-Type: text/plain") + b"--b--", "no name"),
        (FORM, field('Content-Disposition: attachment; name="model"') + b"--b--", "no name"),
        (FORM, field(f"{NAMED}\r\nno colon") + b"--b--", "a header that cannot be read"),
        (FORM, field(f"{NAMED}\r\n folded: x") + b"--b--", "a header that cannot be read"),
        (FORM, field(f"{NAMED}\r\nContent-Transfer-Encoding: base64") + b"--b--", "in the encoding 'base64'"),
        (FORM, field(NAMED) * 257 + b"--b--", "more than 256 parts"),
    ],
)
def test_what_is_no_form_is_refused(kind: str, body: bytes, why: str) -> None:
    with pytest.raises(ApiError, match=why) as caught:
        read_form(kind, body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_body")
