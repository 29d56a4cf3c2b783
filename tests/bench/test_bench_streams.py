"""What `headgate bench streams` makes of a server's memory."""

from __future__ import annotations

from headgate.bench.serving.streams import Memory


def test_a_stream_takes_what_the_server_grew_by() -> None:
    assert Memory(1000, before=100 << 20, open=150 << 20, after=101 << 20).each_kib == 51.2
