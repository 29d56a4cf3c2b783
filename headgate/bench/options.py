"""Options that several benchmarks have."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, get_args

import click

from headgate.bench.checkpoints import SHAPES
from headgate.engine.quant.linear import WeightFormat
from headgate.engine.settings import EngineSettings

F = TypeVar("F", bound=Callable[..., Any])


def weights_option(default: WeightFormat) -> Callable[[F], F]:
    """`--weights`."""
    return click.option(
        "--weights",
        type=click.Choice(get_args(WeightFormat)),
        default=default,
        show_default=True,
        help="How linear layers are kept.",
    )


def model_option(default: str) -> Callable[[F], F]:
    """`--model`; its folder is what `model_folder` gives."""
    return click.option(
        "--model",
        default=default,
        show_default=True,
        help=f"small or large (the demo pair), a checkpoint folder, or a random one: {', '.join(SHAPES)}.",
    )


def peers_option(whose: str) -> Callable[[F], F]:
    """`--peers`."""
    return click.option(
        "--peers",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("peers"),
        envvar="HEADGATE_PEERS",
        show_default=True,
        help=f"Folder of {whose}.",
    )


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: what it has started, servers among them, ends with it."""

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def at_once(count: int) -> EngineSettings:
    """Settings of an engine that keeps no prefixes and decodes so many requests at the same time."""
    usual = EngineSettings(prefix_cache=False, prompt_lookup=False)
    return replace(usual, max_running=max(usual.max_running, count))


class _FileToWrite(click.Path):
    """A file whose folder is there: what cannot be written is said before the minutes that measuring takes."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Its path."""
        path = Path(str(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"folder {str(path.parent)!r} does not exist", param, ctx)
        return path


FILE_TO_WRITE = _FileToWrite()
"""The type of `--json` and its like."""


def need_matplotlib(plots: object) -> None:
    """Refuse `--plot` before anything is measured where plots cannot be drawn; None is no such wish."""
    if plots is not None and find_spec("matplotlib") is None:
        raise click.BadParameter("plots need matplotlib: pip install 'headgate[train]'", param_hint="--plot")
