"""`multipart/form-data` (RFC 7578) read from a body that is there, and written anew.

It is written anew because readers differ in what they make of an odd form: what was checked here is what is read there.
Files are not copied.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from email.message import Message

import msgspec
from aiohttp import content_disposition_filename, parse_content_disposition

from headgate.gateway.wire.errors import ApiError, invalid

FORM = "multipart/form-data"
_MOST_PARTS = 256
_MOST_HEAD_BYTES = 8 * 1024
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{1,70}")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_PLAIN = ("binary", "8bit", "7bit")


class Part(msgspec.Struct, frozen=True):
    """A field, or a file."""

    name: str
    value: memoryview
    filename: str | None = None
    kind: str | None = None
    """The content type, where it says one."""

    @property
    def text(self) -> str:
        """The value of a field; ApiError 400 where it is no text."""
        try:
            return str(self.value, "utf-8")
        except UnicodeDecodeError:
            raise invalid(f"Invalid '{self.name}': not valid UTF-8.", self.name, "invalid_value") from None


def read_form(content_type: str, body: bytes) -> list[Part]:
    """The parts of a form in their order; ApiError 400 where it is none.

    Args:
        content_type: the header of the request, with the boundary.
        body: all of it.
    """
    header = Message()
    header["content-type"] = content_type
    boundary = header.get_boundary("")
    if not _BOUNDARY.fullmatch(boundary):
        raise _malformed("its content type has no boundary of 1 to 70 characters")
    mark = b"\r\n--" + boundary.encode()
    # Some, such as Unity's, write the line's end before the first boundary, too.
    if not body.startswith((mark, mark[2:])):
        raise _malformed("it does not begin with its boundary")
    at, parts, view = body.find(mark[2:]) + len(mark) - 2, list[Part](), memoryview(body)
    while not body.startswith(b"--", at):
        begin = _line_end(body, at)
        # A part without headers is one without a name.
        head_end = body.find(b"\r\n\r\n", begin - 2, begin + _MOST_HEAD_BYTES)
        end = body.find(mark, head_end + 2)
        if head_end < 0 or end < 0:
            raise _malformed("it ends within a part" if end < 0 else "a part has no end of its headers")
        if len(parts) == _MOST_PARTS:
            raise _malformed(f"it has more than {_MOST_PARTS} parts")
        parts.append(_part(body[begin:head_end], view[head_end + 4 : end]))
        at = end + len(mark)
    return parts


def write_form(parts: Sequence[Part]) -> tuple[str, list[bytes | memoryview]]:
    """The content type of a form, and the pieces of its body."""
    boundary = f"headgate-{secrets.token_hex(16)}"
    pieces: list[bytes | memoryview] = []
    for part in parts:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{_quoted(part.name)}"'
        if part.filename is not None:
            head += f'; filename="{_quoted(part.filename)}"'
        if part.kind is not None:
            head += f"\r\nContent-Type: {part.kind}"
        pieces += [f"{head}\r\n\r\n".encode("utf-8", "surrogateescape"), part.value, b"\r\n"]
    pieces.append(f"--{boundary}--\r\n".encode())
    return f"{FORM}; boundary={boundary}", pieces


def _line_end(body: bytes, at: int) -> int:
    """Where the line of a boundary ends, behind which nothing but blanks may be."""
    end = body.find(b"\r\n", at, at + 80)
    if end < 0 or body[at:end].strip(b" \t"):
        raise _malformed("something is behind a boundary")
    return end + 2


def _part(head: bytes, value: memoryview) -> Part:
    fields: dict[str, str] = {}
    for line in head.decode("utf-8", "surrogateescape").split("\r\n"):
        name, colon, text = line.partition(":")
        if line and (not colon or not name.isascii() or name != name.strip() or not text.strip().isprintable()):
            # What is not UTF-8 is not printable either.
            raise _malformed("a part has a header that cannot be read")
        fields[name.lower()] = text.strip()
    # Within quotes `;` parts nothing. What is put in its place stands in no header.
    line = _QUOTED.sub(lambda found: found[0].replace(";", "\0"), fields.get("content-disposition", ""))
    disposition, told = parse_content_disposition(line)
    told = {key: text.replace("\0", ";") for key, text in told.items()}
    name = told.get("name", "")
    if disposition != "form-data" or not name:
        raise _malformed("a part has no name; expected 'Content-Disposition: form-data; name=\"…\"'")
    if (encoding := fields.get("content-transfer-encoding", "binary").lower()) not in _PLAIN:
        raise _malformed(f"a part is in the encoding '{encoding[:80]}'; expected it as it is")
    filename = content_disposition_filename(told)
    return Part(name, value, filename, fields.get("content-type"))


def _quoted(name: str) -> str:
    """A name between quotes as browsers write it; `\\` in the same way, as to some readers no name ends with it."""
    for mark, written in (("\\", "%5C"), ('"', "%22"), ("\r", "%0D"), ("\n", "%0A")):
        name = name.replace(mark, written)
    return name


def _malformed(why: str) -> ApiError:
    return invalid(f"The form could not be read: {why}.", code="invalid_body")
