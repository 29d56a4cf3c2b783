"""`headgate metrics`: describe what a server publishes of itself."""

from __future__ import annotations

import click

from headgate.gateway.telemetry.reference import reference


@click.group()
def metrics() -> None:
    """Describe the metrics of a server."""


@metrics.command("reference")
def print_reference() -> None:
    """Print docs/metrics.md: every metric with its type, labels and meaning."""
    click.echo(reference(), nl=False)
