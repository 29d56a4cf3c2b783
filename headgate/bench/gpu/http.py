"""`headgate bench gpu`: what of the engine's tokens/s is left where they come as HTTP streams."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headgate.bench.engine.workloads import Workload
from headgate.bench.gpu.stages import StageFailed
from headgate.engine.kernels.checks.line import Line
from headgate.engine.settings import EngineSettings

_PROMPT = 64
_REST_S = 8.0
"""For some thirty sizes of steps."""


def http_speed(
    folder: Path,
    settings: EngineSettings,
    scratch: Path,
    streams: int = 512,
    new: int = 1024,
    rounds: int = 1,
    free: int | None = None,
) -> Iterator[Line]:
    """So many streams of `new` tokens at once, in alternation with the engine alone, which has the settings too.

    `free`: bytes of the device's memory that nobody has, where that may be too little.

    Raises:
        StageFailed: the packages of the gateway are not installed, or keys and values of both engines do not fit.
    """
    needed = 2 * (settings.kv_bytes or 0)
    if free is not None and free < needed:
        raise StageFailed(f"not run: two engines take {needed >> 30} GiB, and {free >> 30} GiB are free")
    try:
        from headgate.bench.serving.serve import alternated
        from headgate.gateway import app  # noqa: F401
    except ModuleNotFoundError as error:
        raise StageFailed(f"not run: the gateway's package {error.name} is not installed here") from None
    workload = Workload(f"{streams} streams", ((_PROMPT, new),) * streams)
    found = alternated(folder, "native", settings, workload, scratch, rounds, _REST_S if settings.decode_ahead else 0.0)
    figures = {
        "tokens_s": found.http_tokens_s,
        "engine_tokens_s": found.engine_tokens_s,
        "lost": found.lost,
        "loop_share": found.loop_share,
        "step_share": found.step_share,
        "engine_step_share": found.engine_step_share,
    }
    text = (
        f"{found.http_tokens_s:,.0f} tokens/s, {found.engine_tokens_s:,.0f} by the engine alone "
        f"({found.lost:+.1%} lost); {found.tokens_per_read:.1f} tokens a piece; "
        f"of a core the event loop has {found.loop_share:.0%}, the thread that steps {found.step_share:.0%} and "
        f"{found.engine_step_share:.0%} in the engine alone"
    )
    yield Line(workload.name, text, figures)
