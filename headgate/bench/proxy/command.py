"""`headgate bench proxy`: passing requests on to a server that answers at once, beside other gateways."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from headgate.bench.options import FILE_TO_WRITE, peers_option
from headgate.bench.output import write_json
from headgate.bench.proxy.entrants import INSTALL, Entrant, headgate, litellm, mock, portkey, relay
from headgate.bench.serving.http_load import Load, Request, cores, load

OURS, RELAY, DIRECT = "headgate", "bare aiohttp", "no proxy"
STREAMS = 64
_PATH = "/v1/chat/completions"
_CLIENTS = 16
"""At a time, where there are many."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians over rounds. What somebody cannot do is None."""

    per_second: float | None = None
    """Requests, of many clients at a time."""
    cpu_ms: float | None = None
    """Of the proxy's process for one of them."""
    p50_ms: float | None = None
    """Of a single client's requests."""
    chunks_per_second: float | None = None
    chunk_cpu_us: float | None = None
    first_ms: float | None = None
    """From sending to the first text, of a stream that is paced; median."""


@click.command()
@click.option("--seconds", type=click.FloatRange(min=0.5), default=3.0, show_default=True, help="Of each run.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each, by turns.")
@peers_option("the other gateways, litellm and portkey; who is not there is left out")
@click.option("--json", "json_file", type=FILE_TO_WRITE, help="Write the figures here.")
def proxy(seconds: float, rounds: int, peers: Path, json_file: Path | None) -> None:
    """Time requests and streams that are passed on to a fixed-answer server, with accounting on.

    By turns with a bare aiohttp relay, LiteLLM's proxy and Portkey's gateway. The proxy has one core; the mock behind
    it and the clients have the other.
    """
    console = Console(width=120)
    try:
        own, others = cores()
        with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
            behind = stack.enter_context(mock(others, Path(scratch) / "mock.log"))
            entrants = {DIRECT: behind}
            for name, start in _starts(own, behind.server.url, Path(scratch), peers.absolute()):
                if name in INSTALL and not (peers / INSTALL[name][0]).exists():
                    said = (
                        f"{name} is not installed and not measured. To install it:\n  cd {peers} && {INSTALL[name][1]}"
                    )
                    console.print(said, markup=False, highlight=False, soft_wrap=True)
                    continue
                entrants[name] = stack.enter_context(start())
            runs = _played(entrants, others, seconds, rounds, console)
    except (RuntimeError, OSError) as error:
        raise click.ClickException(str(error)) from None
    figures = {name: figures_of(loads) for name, loads in runs.items()}
    console.print(table_of(figures))
    console.print(f"{rounds} runs of {seconds:g} s each by turns; medians of the runs.")
    write_json(json_file, {name: asdict(f) for name, f in figures.items()})


def _starts(
    core: int, upstream: str, folder: Path, peers: Path
) -> Iterator[tuple[str, Callable[[], AbstractContextManager[Entrant]]]]:
    yield RELAY, partial(relay, core, upstream, folder / "relay.log")
    yield OURS, partial(headgate, core, upstream, folder)
    yield "litellm", partial(litellm, core, upstream, folder, peers)
    yield "portkey", partial(portkey, core, upstream, folder, peers)


def _played(
    entrants: Mapping[str, Entrant], core: int, seconds: float, rounds: int, console: Console
) -> dict[str, dict[str, list[Load]]]:
    """The runs of everybody by kind; a kind that somebody fails at is said once and left out for him."""
    runs: dict[str, dict[str, list[Load]]] = {name: {} for name in entrants}
    kinds = {"whole": _CLIENTS, "single": 1, "flood": STREAMS, "paced": 1}
    failed: set[tuple[str, str]] = set()
    for turn in range(rounds + 1):
        for kind, clients in kinds.items():
            for name, entrant in entrants.items():
                if (name, kind) in failed:
                    continue
                try:
                    # The first turn warms up.
                    run = load(entrant.server, core, clients, seconds if turn else 1.0, _request(kind, entrant))
                except (RuntimeError, OSError) as error:
                    console.print(f"{name} failed at '{kind}': {str(error)[:300]}", markup=False)
                    failed.add((name, kind))
                    runs[name].pop(kind, None)
                    continue
                if turn:
                    runs[name].setdefault(kind, []).append(run)
    return runs


def _request(kind: str, entrant: Entrant) -> Request:
    model = kind if kind in ("flood", "paced") else "fixed"
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 512,
    }
    if model != "fixed":
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return Request(_PATH, entrant.headers, json.dumps(body).encode(), b'" word0"')


def figures_of(runs: Mapping[str, Sequence[Load]]) -> Figures:
    """The medians."""

    def median(kind: str, of: Callable[[Load], float]) -> float | None:
        found = [of(run) for run in runs.get(kind, ())]
        return statistics.median(found) if found else None

    return Figures(
        median("whole", lambda run: run.per_second),
        median("whole", lambda run: run.cpu_ms),
        median("single", lambda run: run.percentile(0.5)),
        median("flood", lambda run: run.events / run.seconds),
        median("flood", lambda run: run.cpu_s / run.events * 1e6),
        median("paced", lambda run: run.first_ms(0.5)),
    )


def table_of(figures: Mapping[str, Figures]) -> Table:
    """A row for each; what is added is beside asking the mock itself."""
    table = Table(
        "", f"requests/s, {_CLIENTS} clients", "CPU", "added p50, 1 client", f"chunks/s, {STREAMS} streams",
        "CPU a chunk", "first text, paced",
    )  # fmt: skip
    direct = figures.get(DIRECT)
    for name, f in figures.items():
        if name == DIRECT:
            continue
        added = None if f.p50_ms is None or direct is None or direct.p50_ms is None else f.p50_ms - direct.p50_ms
        table.add_row(
            name,
            _shown(f.per_second, ",.0f"),
            _shown(f.cpu_ms, ".3f", " ms"),
            _shown(added, ".2f", " ms"),
            _shown(f.chunks_per_second, ",.0f"),
            _shown(f.chunk_cpu_us, ".1f", " µs"),
            _shown(f.first_ms, ".2f", " ms"),
        )
    return table


def _shown(value: float | None, form: str, unit: str = "") -> str:
    return "failed" if value is None else f"{value:{form}}{unit}"
