"""`headgate cache`: look at a server's answer cache and forget parts of it, over HTTP."""

from __future__ import annotations

import json

import click

from headgate.gateway.commands.admin_client import ask, read
from headgate.gateway.commands.options import json_option, key_option, url_option


@click.group()
def cache() -> None:
    """Look at a server's answer cache and forget parts of it."""


@cache.command()
@url_option
@key_option
@click.option("--key", help="The answer of this x-headgate-cache-key.")
@click.option("--tag", help="The answers stored under this tag, of --team or of all teams.")
@click.option("--author", help="The answers that the API key of this id made, of --team or of all teams.")
@click.option("--team", help="The answers of this team.")
@click.option(
    "--epoch", help="Answers of other epochs: begin this one. They are found again when theirs is begun again."
)
@click.option("--all", "everything", is_flag=True, help="Every answer.")
def invalidate(
    url: str,
    api_key: str | None,
    key: str | None,
    tag: str | None,
    author: str | None,
    team: str | None,
    epoch: str | None,
    everything: bool,
) -> None:
    """Forget stored answers: one of --key, --tag, --author, --team, --epoch and --all."""
    given = {"key": key, "tag": tag, "author": author, "team": team, "epoch": epoch, "all": everything or None}
    wanted = {name: value for name, value in given.items() if value is not None}
    if len(wanted) != 1 and set(wanted) not in ({"tag", "team"}, {"author", "team"}):
        raise click.UsageError(
            "give one of --key, --tag, --author, --team, --epoch and --all, or --tag or --author with --team"
        )
    gone = ask(f"{url}/admin/cache/invalidate", api_key, wanted)["invalidated"]
    answers = f"{gone} {'answer' if gone == 1 else 'answers'}"
    click.echo(f"{answers} forgotten." if epoch is None else f"The epoch is '{epoch}'; {answers} stored, of any epoch.")


@cache.command()
@url_option
@key_option
@json_option
def audits(url: str, api_key: str | None, as_json: bool) -> None:
    """What audits found: the share of wrong hits, the threshold, and the answers that are held back."""
    report = ask(f"{url}/admin/cache/audits", api_key, None)
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    share = f"{100 * report['lower']:.2f} to {100 * report['upper']:.2f} % of {report['hits']} hits"
    click.echo(f"wrong        {share}, by {report['labels']} labels of {report['audited']} audits")
    raised = report["threshold"]
    told = (
        "nothing is served"
        if raised is None
        else f"{raised:g} above the certified log odds"
        if raised
        else "as certified"
    )
    click.echo(f"threshold    {told}")
    click.echo(f"held back    {len(report['quarantine'])}")
    for entry in report["quarantine"]:
        click.echo(f"  {entry['key']}  {entry['model']}  {entry['wrong']} wrong")


@cache.command()
@url_option
@key_option
@click.option("--key", help="The answer of this key, as `audits` lists it.")
@click.option("--threshold", is_flag=True, help="The threshold that breaches raised.")
@click.option("--all", "everything", is_flag=True, help="Every answer that is held back.")
def lift(url: str, api_key: str | None, key: str | None, threshold: bool, everything: bool) -> None:
    """Serve again what audits hold back: one of --key, --all and --threshold."""
    given = {"key": key, "threshold": threshold or None, "all": everything or None}
    wanted = {name: value for name, value in given.items() if value is not None}
    if len(wanted) != 1:
        raise click.UsageError("give one of --key, --all and --threshold")
    done = ask(f"{url}/admin/cache/lift", api_key, wanted)
    if threshold:
        click.echo("The threshold is as certified." if done["threshold_lowered"] else "The threshold had not risen.")
    else:
        click.echo(f"{done['lifted']} {'answer' if done['lifted'] == 1 else 'answers'} served again.")


@cache.command()
@url_option
@key_option
def labels(url: str, api_key: str | None) -> None:
    """Print the label log, a JSON object a line: what the rule can be fitted on anew."""
    click.echo(read(f"{url}/admin/cache/labels", api_key, None).decode(), nl=False)


@cache.command()
@url_option
@key_option
@json_option
def stats(url: str, api_key: str | None, as_json: bool) -> None:
    """What the cache holds, and what it did since the server started."""
    report = ask(f"{url}/admin/cache", api_key, None)
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    for name, value in report.items():
        if isinstance(value, dict):
            told = ", ".join(f"{part} {count:.12g}" for part, count in sorted(value.items())) or "none"
            click.echo(f"{name:<12} {told}")
        elif value is not None:
            click.echo(f"{name:<12} {value}")
