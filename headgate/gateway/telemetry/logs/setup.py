"""What a server says to its operator, on stderr, and the lines of requests, where the operator wants them."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, InvalidURLError

from headgate.gateway.parts import StartError
from headgate.gateway.telemetry.logs.access import LOGGER as ACCESS
from headgate.gateway.telemetry.logs.content import LOGGER as CONTENT
from headgate.gateway.telemetry.logs.lines import LineHandler
from headgate.gateway.telemetry.logs.secrets import CarefulFormatter
from headgate.gateway.telemetry.sections import LoggingSection

_MOST_OF_REASON = 200
_SENT = re.compile(r"\n|: (?:bytearray\()?b['\"]")


class Unreadable(logging.Filter):
    """What cannot be read as a request is a line at INFO, not a traceback: whoever scans ports sends nothing else."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Take such records out, and tell of them in words; others stay as they are."""
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if not isinstance(error, BadHttpMessage | web.RequestPayloadError):
            return True
        if isinstance(error, InvalidURLError):
            reason = "Invalid URL"  # which is all that it says otherwise
        else:
            # What was sent follows, on the same line or on those below, and is not for the log.
            said = getattr(error if isinstance(error, BadHttpMessage) else error.__cause__, "message", "Broken body")
            reason = _SENT.split(said.strip(), maxsplit=1)[0]
        where = f" from {record.args[0]}" if isinstance(record.args, tuple) and record.args else ""
        told = logging.getLogger("headgate.gateway")
        told.info("what came%s is no request that can be read: %s", where, reason.rstrip(":.")[:_MOST_OF_REASON])
        return False


class _Shown(CarefulFormatter):
    """Lines of requests are whole already; others get their time and name."""

    def format(self, record: logging.LogRecord) -> str:
        """As logging.Formatter does."""
        return record.getMessage() if record.name in (ACCESS, CONTENT) else super().format(record)


@contextmanager
def logs(section: LoggingSection) -> Iterator[None]:
    """Log as the section says while inside, and write what waits at the end.

    StartError where the file cannot be written.
    """
    try:
        lines = LineHandler(None if section.file is None else Path(section.file))
    except OSError as error:
        raise StartError(f"logging.file is '{section.file}': {error.strerror or error}") from None
    # Not even a line of ours is waited for: a stderr that is stuck would stop all requests, and the server's end.
    shown = lines if section.file is None else LineHandler()
    shown.setFormatter(_Shown("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[shown])
    top = logging.getLogger("headgate")
    top.setLevel(section.level.upper())
    # Progress bars of the libraries that load models: noise in a server's log.
    os.environ.setdefault("TQDM_DISABLE", "1")
    loggers = [logging.getLogger(name) for name in (ACCESS, CONTENT)]
    for logger in loggers:
        logger.addHandler(lines)
        # Requests have their lines whatever else is shown, and each line is by itself.
        logger.setLevel(logging.INFO)
        logger.propagate = False
    server, unreadable = logging.getLogger("aiohttp.server"), Unreadable()
    server.addFilter(unreadable)
    try:
        yield
    finally:
        server.removeFilter(unreadable)
        for logger in loggers:
            logger.removeHandler(lines)
            logger.setLevel(logging.NOTSET)
            logger.propagate = True
        top.setLevel(logging.NOTSET)
        logging.getLogger().removeHandler(shown)
        for handler in {lines, shown}:
            handler.close()
