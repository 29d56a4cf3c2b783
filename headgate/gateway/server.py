"""Running the application: listen, announce, wait for a signal, drain, leave."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import signal
import sys
from collections.abc import Callable

from aiohttp import web

from headgate.engine.errors import EngineError
from headgate.gateway import keys
from headgate.gateway.app import make_app
from headgate.gateway.configuration.live import MainFile
from headgate.gateway.contexts import LOADING
from headgate.gateway.parts import StartError
from headgate.gateway.settings import Settings

logger = logging.getLogger("headgate.gateway")

# By then everything has been drained or cancelled; what is left are idle connections.
_CLOSE_S = 1.0
# Between two looks for garbage. Python's own 700 are three or four requests; almost nothing here is part of a cycle.
_NEW_OBJECTS = 20_000
# For which a thread computes before it lets another one do so that waits. A step on a GPU gives the interpreter up some
# ten times, and each time waits so long for it where the event loop is busy: with Python's own 5 ms far longer than the
# GPU takes.
_TURN_S = 0.0005

Announce = Callable[[str, web.Application], None]


async def run_server(settings: Settings, listening: Announce, ready: Announce, main: MainFile | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then refuse new requests and finish what runs or cut it at the deadline.

    Args:
        settings: what to serve.
        listening: called with the URL once the port is open, while models load.
        ready: called with the URL once requests are answered.
        main: the main file, whose changes are followed.

    Raises:
        StartError: the port cannot be had, or a model cannot be served.
    """
    stop = _stop_on_signals()
    await _try_port(settings)
    sys.setswitchinterval(_TURN_S)
    app = make_app(settings, main)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=_CLOSE_S)
    await runner.setup()
    try:
        url = await _listen(runner, settings)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, app[keys.RELOADER].ask)
        listening(url, app)
        lifecycle = app[keys.LIFECYCLE]
        announcer = asyncio.create_task(_announce(app, url, ready))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({stopped, announcer}, return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done():
                announcer.result()
                await stopped
            logger.info("stopping: %d requests in flight", lifecycle.in_flight)
            if not await lifecycle.drain(settings.server.drain_s):
                logger.warning("cancelling %d requests that outlasted drain_s", lifecycle.in_flight)
                await app[keys.LOADER].cancel()
                await lifecycle.drain(_CLOSE_S)
        finally:
            announcer.cancel()
            stopped.cancel()
    finally:
        await runner.cleanup()


async def _try_port(settings: Settings) -> None:
    """StartError where the port cannot be had: before models load, which has to come to its end before it is told."""
    host, port = settings.server.host, settings.server.port
    try:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port)
    except OSError as error:
        raise _no_port(error, host, port) from None
    except UnicodeError as error:  # a name that no look-up takes, such as a..b
        raise StartError(f"cannot listen on {host}:{port}: {error}") from None
    server.close()
    await server.wait_closed()


def _no_port(error: OSError, host: str, port: int) -> StartError:
    if error.errno == errno.EADDRINUSE:
        return StartError(f"port {port} on {host} is in use; stop what listens there or give another with --port")
    return StartError(f"cannot listen on {host}:{port}: {error.strerror or error}")


async def _listen(runner: web.AppRunner, settings: Settings) -> str:
    host, port = settings.server.host, settings.server.port
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise _no_port(error, host, port) from None
    bound = runner.addresses[0]
    shown = "127.0.0.1" if host in ("0.0.0.0", "") else host
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{bound[1]}"


async def _announce(app: web.Application, url: str, ready: Announce) -> None:
    """Say when requests are answered; StartError where a model cannot be served."""
    loading = app[LOADING]
    opened = asyncio.create_task(app[keys.LIFECYCLE].wait_until_ready())
    try:
        await asyncio.wait({loading, opened}, return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            try:
                loading.result()
            except (EngineError, ValueError, OSError) as error:
                raise StartError(str(error)) from error
        await opened
    finally:
        opened.cancel()
    # What is loaded stays. Looking through its million objects for garbage stops steps and streams for over 0.1 s.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    ready(url, app)
    await asyncio.wait({loading})  # what comes after the models
    gc.freeze()


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def begin_stop() -> None:
        stop.set()
        for number in numbers:
            # A second signal does what it does to any program: it ends this one at once. Of Python's own handler of
            # SIGINT whatever runs at that moment may make something else.
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in numbers:
        loop.add_signal_handler(number, begin_stop)
    return stop
