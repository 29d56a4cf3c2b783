"""`headgate bench streams`: what a thousand open streams, most of them waiting for their turn, take of memory."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import aiohttp
import click

from headgate.bench.options import FILE_TO_WRITE
from headgate.bench.output import write_json
from headgate.bench.serving.serve import server
from headgate.bench.serving.servers import Server
from headgate.engine.demo import checkpoint

_MIB = 1024 * 1024
_SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes of the server: with its models and nothing to do, with the streams open, and after them."""

    streams: int
    before: int
    open: int
    after: int

    @property
    def each_kib(self) -> float:
        """What one stream takes."""
        return (self.open - self.before) / self.streams / 1024


@click.command()
@click.option("--streams", type=click.IntRange(min=1), default=1000, show_default=True, help="Open at the same time.")
@click.option("--json", "json_file", type=FILE_TO_WRITE, help="Write the figures here.")
def streams(streams: int, json_file: Path | None) -> None:
    """Open streams of one server, each with its headers received and nothing read, and look at its memory.

    One stream of each kind of work comes first, so that what is prepared once is in "before".
    """
    folder = checkpoint("student")
    with tempfile.TemporaryDirectory() as scratch, server(folder, "native", Path(scratch)) as running:
        found = asyncio.run(_measure(running, streams))
    before, most, after = (f"{count / _MIB:.0f} MiB" for count in (found.before, found.open, found.after))
    click.echo(
        f"{before} before, {most} with {streams} streams open ({found.each_kib:.0f} KiB each), {after} when they have "
        f"left; {date.today()}"
    )
    write_json(json_file, asdict(found))


async def _measure(running: Server, count: int) -> Memory:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(running.url, connector=connector, timeout=timeout) as session:
        for reply in await asyncio.gather(*(_open(session, number, 8) for number in range(64))):
            await reply.read()
        await asyncio.sleep(_SETTLE_S)
        before = _resident(running.pid)
        replies = await asyncio.gather(*(_open(session, number, 1500) for number in range(count)))
        await asyncio.sleep(_SETTLE_S)
        most = _resident(running.pid)
        for reply in replies:
            reply.close()
        await asyncio.sleep(_SETTLE_S)
        return Memory(count, before, most, _resident(running.pid))


async def _open(session: aiohttp.ClientSession, number: int, new: int) -> aiohttp.ClientResponse:
    messages = [{"role": "user", "content": f"Tell me story number {number}, and a long one."}]
    body = {"model": "bench", "messages": messages, "max_tokens": new, "ignore_eos": True, "stream": True}
    reply = await session.post("/v1/chat/completions", json=body)
    reply.raise_for_status()
    return reply


def _resident(pid: int) -> int:
    """Bytes of a process that are in memory. Linux only, as everything measured here."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024
