"""Starting: seconds to the first token and memory, each start in a process of its own."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from headgate.engine.quant.linear import WeightFormat


@dataclass(frozen=True, slots=True)
class Start:
    """One start. Memory is in bytes, resident in the process, mapped files included.

    Attributes:
        first_token_s: from starting the interpreter to the first token of a 16-token prompt.
        load_s: of that, reading the checkpoint (and quantising, where nothing was kept).
        weights: of the linear layers, all experts.
        imported: before the checkpoint is touched: the interpreter and its libraries.
        resident: after the first token.
        peak: the most there was until then.
    """

    first_token_s: float
    load_s: float
    weights: int
    imported: int
    resident: int
    peak: int

    @property
    def share(self) -> float:
        """Peak over the linear layers' weights, what the libraries take left out of it."""
        return (self.peak - self.imported) / self.weights


def start(folder: Path, weights: WeightFormat, threads: int | None) -> Start:
    """Start the engine on `folder` in a new process and let it write one token.

    Raises:
        RuntimeError: the process failed; the message ends with what it said.
    """
    command = [sys.executable, "-m", "headgate.bench.engine.start", str(folder), weights, str(threads or 0)]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        first_token_s = time.perf_counter() - started
        _, said = process.communicate()
    if process.returncode:
        raise RuntimeError(f"the engine did not start: {said.strip()[-2000:]}")
    found: Mapping[str, float] = json.loads(line)
    sizes = (int(found[name]) for name in ("weights", "imported", "resident", "peak"))
    return Start(first_token_s, found["load_s"], *sizes)


def _serve_one(folder: Path, weights: WeightFormat, threads: int | None) -> None:
    # Imported here: how long that takes is part of what is measured.
    from headgate.engine.engine import Engine
    from headgate.engine.request import Delta, Request
    from headgate.engine.sampling.params import SamplingParams
    from headgate.engine.settings import EngineSettings, ModelSpec

    imported = _memory("VmRSS")
    before = time.perf_counter()
    engine = Engine(EngineSettings(threads=threads))
    engine.load(ModelSpec("started", folder, weights=weights))
    load_s = time.perf_counter() - before
    engine.start()
    deltas: queue.SimpleQueue[Delta] = queue.SimpleQueue()
    sampling = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
    request = Request("first", "started", tuple(range(5, 21)), sampling)

    def post(some: Sequence[Delta]) -> None:
        for delta in some:
            deltas.put(delta)

    engine.submit(request, post)
    while deltas.get().finish is None:
        pass
    found = {
        "load_s": load_s,
        "weights": engine.models["started"].info.weight_bytes,
        "imported": imported,
        "resident": _memory("VmRSS"),
        "peak": _memory("VmHWM"),
    }
    print(json.dumps(found), flush=True)
    engine.stop()


def _memory(field: str) -> int:
    """Bytes that Linux counts for this process; VmHWM is the most there ever was of VmRSS."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    _, path, fmt, count = sys.argv
    if fmt not in get_args(WeightFormat):
        sys.exit(f"weights is {fmt!r}; accepted are {', '.join(get_args(WeightFormat))}")
    _serve_one(Path(path), cast(WeightFormat, fmt), int(count) or None)
