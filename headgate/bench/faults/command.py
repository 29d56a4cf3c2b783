"""`headgate bench faults`: the table of upstream faults and what clients see of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

import click

from headgate.bench.faults.table import FAULTS
from headgate.bench.faults.wall import Row, run_wall


@click.command()
def faults() -> None:
    """Put a server that fails in every way we know behind a gateway, and print what clients see, as Markdown.

    Exits with 1 where one of them sees something else than it should, or the ledger has something else.
    """
    # What the gateway logs of each fault is as it should be, and not what is asked for here.
    logging.getLogger("headgate").setLevel(logging.ERROR)
    rows, strayed = asyncio.run(run_wall())
    for line in table(rows):
        click.echo(line)
    problems = [f"{row.place}: {problem}" for row in rows for problem in row.problems]
    if strayed:
        problems.append(f"{strayed} requests followed a redirect")
    slowest = max(row.seconds for row in rows)
    click.echo(f"\n{len(FAULTS)} faults, {len(rows)} requests, the slowest answered after {slowest:.2f} s.")
    if problems:
        raise click.ClickException("not as it should be:\n  " + "\n  ".join(problems))


def table(rows: Sequence[Row]) -> Iterator[str]:
    """A line a fault."""
    yield "| The upstream | a client that streams sees | one that does not | if only the first attempt fails | billed |"
    yield "| --- | --- | --- | --- | --- |"
    found = {(row.fault.name, row.streams, row.once): row for row in rows}
    for fault in FAULTS:
        streamed, plain = found[fault.name, True, False], found[fault.name, False, False]
        once = [row for row in (found.get((fault.name, s, True)) for s in (True, False)) if row is not None]
        seen = "; ".join(dict.fromkeys(row.seen for row in once)) if once else ""
        bills = {f"{b.prompt_tokens} + {b.completion_tokens} tokens" if b.answers else "nothing"
                 for b in (streamed.billed, plain.billed)}  # fmt: skip
        yield f"| {fault.what} | {streamed.seen} | {plain.seen} | {seen} | {', '.join(sorted(bills))} |"
