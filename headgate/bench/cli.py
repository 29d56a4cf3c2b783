"""The `headgate bench` commands: each prints a table of figures and can write them as JSON."""

from __future__ import annotations

import platform
import tempfile
import time
from dataclasses import asdict
from datetime import date
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table

from headgate.bench import ceilings as limits
from headgate.bench.cache.audit_report import audit
from headgate.bench.cache.cli import cache
from headgate.bench.checkpoints import SHAPES, model_folder
from headgate.bench.demo.command import demo
from headgate.bench.engine.adapters import adapters
from headgate.bench.engine.context import context
from headgate.bench.engine.draft import draft
from headgate.bench.engine.grammar import grammar
from headgate.bench.engine.restart import restarts
from headgate.bench.engine.sampling import sampling
from headgate.bench.engine.speed import EngineBench, Figure
from headgate.bench.engine.start import start as start_once
from headgate.bench.engine.workloads import Workload, decode, mixed, prefill
from headgate.bench.faults.command import faults
from headgate.bench.gpu_check import gpu
from headgate.bench.options import (
    FILE_TO_WRITE,
    model_option,
    need_matplotlib,
    peers_option,
    terminable,
    weights_option,
)
from headgate.bench.output import table_of, write_json
from headgate.bench.peers.command import run_against
from headgate.bench.peers.entrants import PEERS
from headgate.bench.peers.process import EngineFailed
from headgate.bench.proxy.command import proxy
from headgate.bench.quality.command import quality
from headgate.bench.redis.command import redis
from headgate.bench.routing.cli import routing
from headgate.bench.serving.batch import batch
from headgate.bench.serving.gateway import gateway
from headgate.bench.serving.serve import alternated
from headgate.bench.serving.streams import streams
from headgate.bench.soak.command import soak
from headgate.engine.engine import Engine
from headgate.engine.quant.linear import WeightFormat
from headgate.engine.settings import EngineSettings, ModelSpec

_BATCHES = {"decode": (1, 8, 32), "b1": (1,), "b8": (8,), "b32": (32,)}
_ALL = ("prefill", "decode", "mixed")


@click.group()
def bench() -> None:
    """Measure the engine and the server, and the demo models that come with them."""
    click.get_current_context().with_resource(terminable())


for command in (
    adapters, audit, batch, cache, context, demo, draft, faults, gateway, gpu, grammar, proxy, quality, redis, routing,
    sampling, soak, streams,
):  # fmt: skip
    bench.add_command(command)


@bench.command()
@click.argument("workloads", nargs=-1, type=click.Choice(["prefill", *_BATCHES, "mixed", "restart"]))
@model_option("small")
@weights_option("native")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of CPU operators.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Medians are over these.")
@click.option("--new", type=click.IntRange(min=2), help="New tokens of each request of the decode workloads.")
@click.option(
    "--requests", type=click.IntRange(min=1), default=64, show_default=True, help="Requests of the mixed workload."
)
@click.option(
    "--tokens", type=click.IntRange(min=64), default=1024, show_default=True, help="Of the prompt of restart."
)
@click.option(
    "--against",
    help="Other engines to run in alternation with ours on a random checkpoint, separated by commas: "
    f"{', '.join(PEERS)}, or one of their formats as in llama.cpp:q8_0. CPU only.",
)
@peers_option("the other engines, one environment each, and of the converted checkpoints")
@click.option("--prepare", is_flag=True, help="With --against: only write and convert the checkpoints.")
@click.option(
    "--json",
    "json_file",
    type=FILE_TO_WRITE,
    help="Write the figures here. With --against, pairs that are in the file already are kept and shown too.",
)
@click.option(
    "--plot",
    "plot_file",
    type=FILE_TO_WRITE,
    help="With --against: draw the roofline here (PNG).",
)
def engine(
    workloads: tuple[str, ...],
    model: str,
    weights: WeightFormat,
    device: str,
    threads: int | None,
    rounds: int,
    new: int | None,
    requests: int,
    tokens: int,
    against: str | None,
    peers: Path,
    prepare: bool,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Time the engine alone on WORKLOADS (all but restart by default): tokens in, tokens out, random prompts, no cache
    hits.

    restart, which runs alone, is the first token of a long prompt from engines that have just started: computed, or
    with keys and values that an engine before them left on disk.
    """
    need_matplotlib(plot_file)
    if "restart" in workloads:
        if len(workloads) > 1 or against or prepare or plot_file:
            raise click.UsageError("restart runs alone, with --model, --weights, --device, --threads, "
                                   "--rounds, --tokens and --json")  # fmt: skip
        settings = EngineSettings(device=device, threads=threads, prompt_lookup=False)
        _restart(model, weights, settings, tokens, rounds, json_file)
        return
    console = Console(width=110)
    chosen = [w for name in workloads or _ALL for w in _workloads(name, new, requests)]
    if against is not None:
        console = Console(width=150)
        if model not in SHAPES:
            raise click.BadParameter(f"--against takes {' or '.join(SHAPES)}, not {model!r}", param_hint="--model")
        try:
            run_against(
                against, shape=model, weights=weights, workloads=chosen, peers=peers.absolute(), threads=threads,
                rounds=rounds, prepare_only=prepare, json_file=json_file, plot_file=plot_file, console=console,
            )  # fmt: skip
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--against") from None
        except EngineFailed as error:
            raise click.ClickException(f"our own engine: {error}") from None
        return
    if prepare or plot_file is not None:
        raise click.UsageError("--prepare and --plot belong to --against")
    with tempfile.TemporaryDirectory() as scratch:
        folder = model_folder(model, Path(scratch))
        settings = EngineSettings(device=device, threads=threads, prefix_cache=False, prompt_lookup=False)
        try:
            served = Engine(settings)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        served.load(ModelSpec("bench", folder, weights=weights))
        if threads is not None:
            torch.set_num_threads(threads)
        measured = limits.measure(served.device)
        served.start()
        try:
            runner = EngineBench(served, "bench")
            runner.run(Workload("warm-up", ((16, 4),)))
            figures = [runner.figure(w, [runner.run(w) for _ in range(rounds)], measured) for w in chosen]
        except RuntimeError as error:
            raise click.ClickException(str(error)) from None
        finally:
            served.stop()
    info = served.models["bench"].info
    used = served.kernels
    console.print(_table(f"{model}, {info.dtype}, weights {weights}", figures))
    console.print(
        f"{measured.device}, {measured.threads} threads: {measured.read_bytes_s / 1e9:.1f} GB/s read, "
        + ", ".join(f"{dtype} {flops / 1e9:.0f} GFLOP/s" for dtype, flops in measured.flops.items())
        + f"; kernels: {used}; torch {torch.__version__}, {date.today()}"
    )
    write_json(
        json_file,
        {
            "model": model,
            "weights": weights,
            "dtype": info.dtype,
            "kernels": used,
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "device": measured.device,
            "threads": measured.threads,
            "read_gb_s": measured.read_bytes_s / 1e9,
            "gflop_s": {dtype: flops / 1e9 for dtype, flops in measured.flops.items()},
            "figures": [asdict(f) for f in figures],
        },
    )


@bench.command()
@model_option("small")
@weights_option("native")
@click.option(
    "--streams", type=click.IntRange(min=1, max=1024), default=64, show_default=True, help="Open at the same time."
)
@click.option("--new", type=click.IntRange(min=2), default=128, show_default=True, help="Tokens per stream.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Medians are over these.")
@click.option("--json", "json_file", type=FILE_TO_WRITE, help="Write the figures here.")
def serve(model: str, weights: WeightFormat, streams: int, new: int, rounds: int, json_file: Path | None) -> None:
    """Compare tokens/s of concurrent HTTP streams with the engine alone, round by round in alternation."""
    workload = Workload(f"{streams} streams", ((64, new),) * streams)
    with tempfile.TemporaryDirectory() as scratch:
        folder = model_folder(model, Path(scratch))
        settings = EngineSettings(prefix_cache=False, prompt_lookup=False)
        result = alternated(folder, weights, settings, workload, Path(scratch), rounds)
    Console(width=110).print(
        f"{model}, weights {weights}, {streams} streams of {new} tokens, medians of {rounds} rounds\n"
        f"  engine alone   {result.engine_tokens_s:9,.0f} tokens/s\n"
        f"  through HTTP   {result.http_tokens_s:9,.0f} tokens/s  ({result.lost:+.1%} lost)\n"
        f"  first token    {result.http_first_token_s * 1e3:9,.0f} ms, median over the streams\n"
        f"  client         {result.client_share:9.1%} of one of the same cores; "
        f"{result.tokens_per_read:.1f} tokens per piece it read\n"
        f"  event loop     {result.loop_share:9.1%} of one core; "
        f"{result.loop_s_per_1000_reads:.3f} CPU seconds for 1,000 pieces, the requests' beginnings and ends included"
    )
    write_json(json_file, {"model": model, "weights": weights, "new": new, **result.as_json()})


@bench.command()
@model_option("small")
@weights_option("native")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of CPU operators.")
@click.option("--starts", type=click.IntRange(min=1), default=4, show_default=True, help="Starts, one after the other.")
@click.option("--json", "json_file", type=FILE_TO_WRITE, help="Write the figures here.")
def start(model: str, weights: WeightFormat, threads: int | None, starts: int, json_file: Path | None) -> None:
    """Time engine starts, each a process of its own, to their first token, and take their memory.

    A format that is quantised at load is quantised in the first start, unless the folder was used before, and mapped in
    those after it. The page cache is left as it is: after the first start the checkpoint is in it.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = model_folder(model, Path(scratch))
        measured = [start_once(folder, weights, threads) for _ in range(starts)]
    heads = (
        "start", "first token, s", "loading, s", "weights, MB", "libraries, MB", "resident, MB", "peak, MB", "share",
    )  # fmt: skip
    table = table_of(f"{model}, weights {weights}: starts", (), heads, min_width=100)
    for number, each in enumerate(measured, 1):
        sizes = (each.weights, each.imported, each.resident, each.peak)
        times = (f"{each.first_token_s:.2f}", f"{each.load_s:.2f}")
        table.add_row(str(number), *times, *(f"{size / 1e6:,.0f}" for size in sizes), f"{each.share:.2f}")
    console = Console(width=110)
    console.print(table)
    console.print(
        "share: (peak - libraries) / weights of the linear layers; resident counts mapped files that were read"
    )
    console.print(f"{limits.device_name(torch.device('cpu'))}; torch {torch.__version__}, {date.today()}")
    write_json(json_file, {"model": model, "weights": weights, "starts": [asdict(each) for each in measured]})


def _restart(
    model: str, weights: WeightFormat, settings: EngineSettings, tokens: int, rounds: int, json_file: Path | None
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        spec = ModelSpec("bench", model_folder(model, Path(scratch)), weights=weights)
        try:
            found = restarts(settings, spec, tokens, rounds)
        except (ValueError, RuntimeError) as error:
            raise click.ClickException(str(error)) from None
    console = Console(width=110)
    console.print(
        f"{model}, weights {weights}: the first token after {tokens} tokens, of which {found.loaded} are on disk "
        f"({found.nbytes / 1e6:.1f} MB), medians of {rounds} rounds"
    )
    for line in found.lines():
        console.print(line, soft_wrap=True)
    used = settings.threads or torch.get_num_threads()
    console.print(
        f"{limits.device_name(torch.device('cpu'))}, {used} threads; torch {torch.__version__}, {date.today()}"
    )
    write_json(json_file, {"model": model, "weights": weights, **asdict(found)})


def _workloads(name: str, new: int | None, requests: int) -> list[Workload]:
    if name in _BATCHES:
        return [decode(batch) if new is None else decode(batch, new) for batch in _BATCHES[name]]
    return [prefill() if name == "prefill" else mixed(requests)]


def _table(title: str, figures: list[Figure]) -> Table:
    heads = ("tokens/s", "decode only", "spread", "rate", "share", "outside forward")
    table = table_of(title, ("workload",), heads, min_width=100)
    for f in figures:
        table.add_row(
            f.workload,
            f"{f.tokens_s:,.0f}",
            f"{f.decode_tokens_s:,.0f}" if f.decode_tokens_s else "",
            f"{f.spread:.0%}",
            f"{f.rate:,.1f} {f.unit}",
            f"{f.share:.0%}",
            f"{f.overhead:.1%} ({f.sampling:.1%} + {f.scheduling:.1%})",
        )
    return table
