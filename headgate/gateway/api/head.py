"""The head of a reply with status 200, for those that are written without aiohttp's own.

aiohttp keeps headers in a dict of lists that does not mind upper and lower case, asks whether the body is to be
compressed, chunked or cut, and only then writes them. That takes longer than making an answer from the cache does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache


def head_of(shown: Mapping[str, str]) -> bytes:
    """The line of the status, the date and these headers; the empty line is left to whoever has more of them.

    ValueError where one would become two.
    """
    lines = "".join([f"{name}: {value}\r\n" for name, value in shown.items()])
    if lines.count("\n") != len(shown):
        raise ValueError("a header of the reply has a line break in it")
    return f"HTTP/1.1 200 OK\r\nDate: {_date(int(time.time()))}\r\n{lines}".encode()


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)
