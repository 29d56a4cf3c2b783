"""Options that several benchmarks have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from headgate.engine.quant.linear import WeightFormat

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
