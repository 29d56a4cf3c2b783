"""`headgate bench engine --against ...`: prepare, play, print, keep."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import torch
from rich.console import Console

from headgate.bench import ceilings as limits
from headgate.bench.ceilings import Ceilings
from headgate.bench.checkpoints import write_random
from headgate.bench.engine.workloads import Workload
from headgate.bench.output import write_json
from headgate.bench.peers.entrants import entrants
from headgate.bench.peers.match import Match, play
from headgate.bench.peers.process import EngineFailed, module_command
from headgate.bench.peers.report import plot, table
from headgate.engine.quant.linear import WeightFormat

_BITS: Mapping[str, float] = {"native": 16, "int8": 8}
"""Bits per weight of our formats; those not listed are of the 4-bit class."""


def run_against(
    asked: str,
    *,
    shape: str,
    weights: WeightFormat,
    workloads: Sequence[Workload],
    peers: Path,
    threads: int | None,
    rounds: int,
    prepare_only: bool,
    json_file: Path | None,
    plot_file: Path | None,
    console: Console,
) -> None:
    """Measure ours against the peers and print every pair this file knows of the shape and format.

    Raises:
        ValueError: `asked` names no peer.
        EngineFailed: our own engine's process ended.
    """
    chosen = entrants(asked, _BITS.get(weights, 4))
    checkpoint = write_random(shape, peers / "checkpoints")
    there = []
    for entrant in chosen:
        missing = entrant.missing(peers)
        if missing is not None:
            said = f"{entrant.name} is not installed and not measured. To install it:\n  {missing}"
            console.print(said, markup=False, soft_wrap=True)
            continue
        try:
            entrant.prepare(checkpoint, peers, lambda command: _convert(command, peers))
            there.append(entrant)
        except EngineFailed as error:
            console.print(f"{entrant.name} is not measured: {error}", markup=False, soft_wrap=True)
    if prepare_only:
        return
    threads = threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    matches, ceilings = _kept(json_file, limits.measure(torch.device("cpu")))
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    played = play(
        shape, checkpoint, weights, there, workloads,
        peers=peers, threads=threads, rounds=rounds, say=lambda text: console.print(text, style="dim"),
    )  # fmt: skip
    for match in played:
        matches[match.key] = match
        _write(json_file, ceilings, matches, started)
    shown = [m for m in matches.values() if (m.model, m.weights) == (shape, weights)]
    for _, pair in groupby(sorted(shown, key=lambda m: m.peer), lambda m: m.peer):
        _print(list(pair), ceilings, console)
    console.print(
        f"{ceilings.device}, {threads} threads: {ceilings.read_bytes_s / 1e9:.1f} GB/s read, "
        + ", ".join(f"{dtype} {flops / 1e9:.0f} GOP/s" for dtype, flops in ceilings.flops.items())
        + f"; {started}"
    )
    if plot_file is not None and matches:
        plot(list(matches.values()), ceilings, plot_file)


def _convert(command: Sequence[object], peers: Path) -> None:
    said = peers / "bench.log"
    with said.open("ab") as log:
        try:
            subprocess.run(module_command(command), stdout=log, stderr=log, check=True)
        except subprocess.CalledProcessError as error:
            raise EngineFailed(f"{command[0]} ended with status {error.returncode}; {said} ends with why") from error


def _print(pair: Sequence[Match], ceilings: Ceilings, console: Console) -> None:
    console.print(table(pair, ceilings))
    about = next((m.their_about for m in pair if m.their_about is not None), None)
    if about is not None:
        console.print(f"{about.version}: {about.settings}\n", style="dim")


def _kept(file: Path | None, measured: Ceilings) -> tuple[dict[tuple[str, str, str, str], Match], Ceilings]:
    """The matches of a file and the higher of both ceilings: whatever else runs on a machine only lowers one."""
    if file is None or not file.exists():
        return {}, measured
    content = json.loads(file.read_text())
    matches = {match.key: match for match in msgspec.convert(content["matches"], list[Match])}
    known = msgspec.convert(content["ceilings"], Ceilings)
    if (known.device, known.threads) != (measured.device, measured.threads):
        return matches, measured
    flops = {dtype: max(rate, known.flops.get(dtype, 0.0)) for dtype, rate in measured.flops.items()}
    return matches, replace(measured, read_bytes_s=max(measured.read_bytes_s, known.read_bytes_s), flops=flops)


def _write(file: Path | None, ceilings: Ceilings, matches: Mapping[Any, Match], date: str) -> None:
    write_json(file, {"date": date, "ceilings": asdict(ceilings), "matches": [asdict(m) for m in matches.values()]})
