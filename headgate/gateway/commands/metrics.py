"""`headgate metrics`: describe what a server publishes of itself."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import dedent

import click

from headgate.gateway.telemetry.metrics.catalogue import SECTIONS, families

_HEAD = """\
# Metrics

Every metric that `/metrics` may have, with its type, its labels and what it tells. `headgate metrics reference` prints
this page from the code, and tests hold that it is current and what a server publishes. `docs/telemetry.md` tells what
labels may say and how to read the rest.
"""


@click.group()
def metrics() -> None:
    """Describe the metrics of a server."""


@metrics.command("reference")
def print_reference() -> None:
    """Print docs/metrics.md: every metric with its type, labels and meaning."""
    click.echo("\n".join([_HEAD, *_sections()]), nl=False)


def _sections() -> Iterator[str]:
    for title, section in SECTIONS:
        yield f"## {title}\n"
        yield dedent(f"    {(section.__doc__ or '').strip()}\n")
        yield "| Name | Type | Labels | What it tells |"
        yield "| --- | --- | --- | --- |"
        for family in families(section):
            labels = ", ".join(f"`{label}`" for label in family.labels)
            yield f"| `{family.name}` | {family.type} | {labels} | {family.text} |"
        yield ""
