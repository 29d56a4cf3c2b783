"""`headgate`: the command line."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from pathlib import Path

import click
from aiohttp import web

from headgate import __version__
from headgate.gateway.commands import chat as terminal
from headgate.gateway.commands.adapters import adapters
from headgate.gateway.commands.cache import cache
from headgate.gateway.commands.config import config
from headgate.gateway.commands.explain import explain
from headgate.gateway.commands.feedback import feedback
from headgate.gateway.commands.keys import keys
from headgate.gateway.commands.metrics import metrics
from headgate.gateway.commands.models import models
from headgate.gateway.commands.options import config_option, unusable, url_option
from headgate.gateway.commands.usage import usage
from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.configuration.live import MainFile
from headgate.gateway.configuration.reading import load_settings
from headgate.gateway.settings import Settings

COMMANDS = "headgate.commands"


class Commands(click.Group):
    """Our commands, and those that other packages offer under the entry point group `headgate.commands`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted({*super().list_commands(ctx), *(e.name for e in entry_points(group=COMMANDS))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Ours first; another package's is imported when it is called."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        for entry in entry_points(group=COMMANDS, name=cmd_name):
            command = entry.load()
            return command if isinstance(command, click.Command) else None
        return None


@click.group(cls=Commands)
@click.version_option(__version__, prog_name="headgate")
def main() -> None:
    """An OpenAI-compatible inference gateway that owns its engine."""


@main.command()
@config_option
@click.option("--host", help="Address to listen on, instead of server.host.")
@click.option("--port", type=click.IntRange(0, 65535), help="TCP port, instead of server.port; 0 takes a free one.")
def serve(config_path: Path | None, host: str | None, port: int | None) -> None:
    """Serve models. Without a configuration: the bundled demo pair on 127.0.0.1:8000."""
    _have_streams()
    _have_files()
    # Each text is tokenized by itself, so that threads for several are of no use. Where the system gives none, the
    # library panics, and no model answers.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    click.get_current_context().with_resource(_signals_of_the_start())
    if host == "":
        raise click.BadParameter("an empty address would listen everywhere; say 0.0.0.0 for that", param_hint="--host")
    read = _settings(config_path)
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = read.model_copy(update={"server": read.server.model_copy(update=given)})
    main_file = None if config_path is None else MainFile(config_path, read, settings)
    # Imported here: torch takes seconds, and the other commands need none of it.
    import uvloop

    from headgate.gateway.parts import StartError
    from headgate.gateway.server import run_server
    from headgate.gateway.telemetry.logs.setup import logs

    before = set(threading.enumerate())
    try:
        with logs(settings.logging):
            uvloop.run(run_server(settings, _listening, _ready, main_file))
    except StartError as error:
        raise click.ClickException(str(error)) from None
    if not before.issuperset(threading.enumerate()):
        # All is closed and written. What still reads weights cannot be interrupted, and who stops a server that loads
        # need not wait for it.
        os._exit(0)


def _have_streams() -> None:
    """Have something where stdin, stdout and stderr were closed.

    A socket would get the number, and with it what libraries print; the event loop ends the process over one.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)


def _have_files() -> None:
    """Take as many open files as this process may have: a request that is passed on has two, and usual are 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # where the system says that there is no bound, and means another
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def _signals_of_the_start() -> Iterator[None]:
    """Follow signals until the server does.

    The first process of a container gets none that it has no handler for, and could not be stopped while it starts.
    Python's own of SIGINT raises in the midst of an import. What SIGHUP asks to be read again is read anyway.
    """
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [(number, signal.getsignal(number)) for number in numbers]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _listening(url: str, app: web.Application) -> None:
    from headgate.gateway.features import features

    shown = [f"  {feature.name:<15} {'on ' if feature.on else 'off'}  {feature.why}" for feature in features(app)]
    _say("\n".join([f"Headgate {__version__} listens on {url} and loads its models.", *shown]))


def _ready(url: str, app: web.Application) -> None:
    from headgate.gateway.features import curl_line

    _say(f"Ready. Try it:\n\n  {curl_line(url, app)}\n")


def _say(text: str) -> None:
    # Requests are served also where a full disk, or nobody, takes it.
    with suppress(OSError):
        click.echo(text)


@main.command()
@url_option
@click.option("--model", default="auto", show_default=True, help="auto, small, large or a model id.")
@click.option("--api-key", envvar="OPENAI_API_KEY", help="Sent as the bearer token.")
@click.option("--max-tokens", type=click.IntRange(1), help="Longest answer, in tokens.")
@click.argument("question", required=False)
def chat(url: str, model: str, api_key: str | None, max_tokens: int | None, question: str | None) -> None:
    """Talk to a server. With a QUESTION: ask it and leave."""
    client = terminal.ChatClient(url, model, api_key, max_tokens)
    try:
        asyncio.run(terminal.converse(client, question))
    except terminal.ChatError as error:
        raise click.ClickException(str(error)) from None
    except (KeyboardInterrupt, EOFError):
        click.echo()


main.add_command(adapters)
main.add_command(cache)
main.add_command(config)
main.add_command(explain)
main.add_command(feedback)
main.add_command(keys)
main.add_command(metrics)
main.add_command(models)
main.add_command(usage)


def _settings(path: Path | None) -> Settings:
    try:
        return load_settings(path)
    except ConfigError as error:
        raise unusable(error) from None


if __name__ == "__main__":
    main()
