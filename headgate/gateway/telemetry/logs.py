"""What a server says to its operator, on stderr, and the lines of requests, where the operator wants them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.gateway.parts import StartError
from headgate.gateway.telemetry.access_log import LOGGER as ACCESS
from headgate.gateway.telemetry.content import LOGGER as CONTENT
from headgate.gateway.telemetry.log_lines import LineHandler
from headgate.gateway.telemetry.secrets import CarefulFormatter
from headgate.gateway.telemetry.sections import LoggingSection


@contextmanager
def logs(section: LoggingSection) -> Iterator[None]:
    """Log as the section says while inside, and write what waits at the end.

    StartError where the file cannot be written.
    """
    try:
        lines = LineHandler(None if section.file is None else Path(section.file))
    except OSError as error:
        raise StartError(f"logging.file is '{section.file}': {error.strerror or error}") from None
    handler = logging.StreamHandler()
    handler.setFormatter(CarefulFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
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
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(lines)
            logger.setLevel(logging.NOTSET)
            logger.propagate = True
        top.setLevel(logging.NOTSET)
        lines.close()
