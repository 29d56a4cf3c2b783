"""Types that bodies are decoded to, first asked for by several threads at the same time."""

from __future__ import annotations

from threading import Thread

import msgspec

from headgate.gateway.wire.decode import decode, decoder_of

_OTHERS: list[Thread] = []


def _asked_meanwhile() -> type[int]:
    """What msgspec asks for while it makes a decoder; somebody else comes for one."""
    other = Thread(target=decoder_of, args=(_Late,))
    other.start()
    other.join(0.05)
    _OTHERS.append(other)
    assert other.is_alive(), "it has what is not whole yet, and would read memory that is not there"
    return int


class _Late(msgspec.Struct):
    value: _asked_meanwhile()  # type: ignore[valid-type]


def test_nobody_has_a_decoder_that_is_still_made() -> None:
    assert decode(b'{"value": 3}', _Late).value == 3
    (other,) = _OTHERS
    other.join(20)
    assert not other.is_alive()
