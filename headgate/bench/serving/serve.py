"""What HTTP costs: the same streams through a real server process, and through the engine alone, in alternation."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from urllib.parse import urlsplit

from headgate.bench.engine.speed import EngineBench, started
from headgate.bench.engine.workloads import Prompts, Workload
from headgate.bench.serving.servers import Server, gateway
from headgate.engine.quant.linear import WeightFormat
from headgate.engine.settings import EngineSettings, ModelSpec

_FIRST = 192
"""Most new tokens of a stream before it counts: more steps than are launched before they are recorded."""
_UNCACHED = EngineSettings(prefix_cache=False, prompt_lookup=False)


@dataclass(frozen=True, slots=True)
class Round:
    """One round of streams over HTTP. Times in seconds, measured by the client on the same cores as the server."""

    seconds: float
    tokens: int
    first_token_s: float
    """Median over the streams."""
    cpu_s: float
    """What the client computed itself."""
    reads: int
    """How many pieces the client got: the server's writes, where the client kept up."""
    loop_cpu_s: float
    """What the server's event loop computed meanwhile: everything but the engine."""
    step_cpu_s: float
    """What its busiest other thread did, which is the engine's on a GPU; on a CPU operators have threads besides."""

    @property
    def tokens_s(self) -> float:
        """New tokens per second over the whole run."""
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Comparison:
    """Medians of alternating rounds."""

    streams: int
    engine_tokens_s: float
    http_tokens_s: float
    http_first_token_s: float
    client_share: float
    """Of one core, taken by the client from engine and server."""
    tokens_per_read: float
    loop_share: float
    """Of one core, taken by the server's event loop from the engine."""
    loop_s_per_1000_reads: float
    """CPU seconds of the event loop for a thousand pieces, everything else about the requests included."""
    step_share: float
    """Of one core, taken by the thread that steps, in the server."""
    engine_step_share: float
    """The same in the engine alone."""

    @property
    def lost(self) -> float:
        """Share of the engine's tokens/s that the way over HTTP costs."""
        return 1 - self.http_tokens_s / self.engine_tokens_s

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        return {**asdict(self), "lost": self.lost}


def compare(
    engine_tokens_s: Sequence[float], engine_step_share: Sequence[float], rounds: Sequence[Round], streams: int
) -> Comparison:
    """Medians of both sides."""
    return Comparison(
        streams,
        statistics.median(engine_tokens_s),
        statistics.median(r.tokens_s for r in rounds),
        statistics.median(r.first_token_s for r in rounds),
        statistics.median(r.cpu_s / r.seconds for r in rounds),
        statistics.median(r.tokens / r.reads for r in rounds),
        statistics.median(r.loop_cpu_s / r.seconds for r in rounds),
        statistics.median(1e3 * r.loop_cpu_s / r.reads for r in rounds),
        statistics.median(r.step_cpu_s / r.seconds for r in rounds),
        statistics.median(engine_step_share),
    )


class Clock:
    """What the threads of a process compute from now on. Linux only, as everything measured here."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = self._seconds()

    def _seconds(self) -> dict[int, float]:
        found = {}
        for path in Path(f"/proc/{self._pid}/task").glob("*/schedstat"):
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile
                found[int(path.parent.name)] = int(path.read_text().split()[0]) / 1e9
        return found

    def passed(self) -> tuple[float, float]:
        """CPU seconds of the main thread, and of the busiest other one."""
        spent = {thread: now - self._before.get(thread, 0.0) for thread, now in self._seconds().items()}
        main = spent.pop(self._pid)
        return main, max(spent.values(), default=0.0)


def alternated(
    folder: Path,
    weights: WeightFormat,
    settings: EngineSettings,
    workload: Workload,
    scratch: Path,
    rounds: int,
    rest_s: float = 0.0,
) -> Comparison:
    """The streams of the workload over HTTP and by the engine alone, which both have these settings, round by round.

    `rest_s`: that both have nothing to do before it counts, in which they record steps.
    """
    engine_tokens_s, engine_step_share, over_http = [], [], []
    with (
        started(settings, ModelSpec("bench", folder, weights=weights)) as alone,
        server(folder, weights, scratch, settings) as served,
    ):
        runner = EngineBench(alone, "bench")
        prompts = Prompts(min(alone.models["bench"].info.vocab_size, 3000))
        # As many streams as what counts: whatever is compiled or recorded at first use is, of both.
        first = Workload("first", tuple((prompt, min(new, _FIRST)) for prompt, new in workload.requests))
        run_streams(served, prompts, first)
        runner.run(first)
        time.sleep(rest_s)
        for _ in range(rounds):
            clock = Clock(os.getpid())
            seconds = runner.run(workload).total_s
            engine_step_share.append(clock.passed()[1] / seconds)
            engine_tokens_s.append(workload.new_tokens / seconds)
            over_http.append(run_streams(served, prompts, workload))
    return compare(engine_tokens_s, engine_step_share, over_http, len(workload.requests))


def _section(settings: EngineSettings) -> dict[str, object]:
    """The settings as those of a server that are not the usual ones."""
    return {f.name: value for f in fields(settings) if (value := getattr(settings, f.name)) != f.default}


@contextmanager
def server(model: Path, weights: str, scratch: Path, settings: EngineSettings = _UNCACHED) -> Iterator[Server]:
    """A gateway with one model and no caches of answers, which is ready."""
    sections = {
        "engine": _section(settings),
        "models": [{"id": "bench", "path": str(model), "weights": weights}],
        "cache": {"exact": {"enabled": False}, "semantic": {"enabled": False}},
        "storage": {"folder": str(scratch / "data")},
        "teams": {"folder": None},
        "logging": {"level": "error", "access": False},
    }
    with gateway(sections, scratch) as running:
        running.wait_until_ready()
        yield running


def run_streams(server: Server, prompts: Prompts, workload: Workload) -> Round:
    """All requests of the workload as concurrent streams of token ids, from a client process of its own."""
    bodies = [
        json.dumps(
            {
                "model": "bench",
                "prompt": list(prompt),
                "max_tokens": new,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        for prompt, new in prompts.fill(workload)
    ]
    target = urlsplit(server.url)
    asked = {"host": target.hostname, "port": target.port, "path": "/v1/completions", "bodies": bodies}
    command = [sys.executable, "-m", "headgate.bench.serving.stream_client"]
    clock = Clock(server.pid)
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the client failed: {done.stderr.strip()}")
    loop_cpu_s, step_cpu_s = clock.passed()
    return Round(**json.loads(done.stdout), loop_cpu_s=loop_cpu_s, step_cpu_s=step_cpu_s)
