"""All upstreams of a server: their connections, and the checks of their health."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

from yarl import URL

from headgate.gateway.configuration.secret_reference import header_secret, resolved
from headgate.gateway.upstream.connection import Connection, NotHttpError
from headgate.gateway.upstream.connections import Connections
from headgate.gateway.upstream.destination import UpstreamDestination
from headgate.gateway.upstream.health import Standing
from headgate.gateway.upstream.passthrough import Passer
from headgate.gateway.upstream.post import head_of
from headgate.gateway.upstream.sections import UpstreamSection

logger = logging.getLogger("headgate.gateway")


class Upstreams:
    """Opened and closed with the server."""

    def __init__(self, sections: Sequence[UpstreamSection], environ: Mapping[str, str]) -> None:
        """Not connected yet. ValueError where a key that is referred to is not there.

        Args:
            sections: as configured.
            environ: holds what `env:` refers to.
        """
        self._sections = sections
        self._keys = {s.id: None if s.api_key is None else header_secret(s.api_key, environ) for s in sections}
        self._headers = {s.id: {name: resolved(v, environ) for name, v in s.headers.items()} for s in sections}
        self._connections: list[Connections] = []
        self._destinations: list[UpstreamDestination] = []
        self.passers: dict[str, Passer] = {}
        """By id, those that serve other things than chats, once they are open."""
        self._checks: list[asyncio.Task[None]] = []
        self.standings = {s.id: Standing(s.health.failures) for s in sections}

    def open(self) -> list[UpstreamDestination]:
        """The destinations of chats, in the order of the configuration. Checks begin."""
        if not self._sections:
            return []
        found = self._destinations
        for section in self._sections:
            standing = self.standings[section.id]
            connections = Connections(URL(section.base_url))
            self._connections.append(connections)
            key, headers = self._keys[section.id], self._headers[section.id]
            if "chat" in section.serves:
                found.append(UpstreamDestination(section, connections, api_key=key, headers=headers, standing=standing))
            if section.serves != {"chat"}:
                self.passers[section.id] = Passer(section, connections, api_key=key, headers=headers, standing=standing)
            if section.health.path is not None:
                url = URL(section.base_url).origin().join(URL(section.health.path))
                check = self._check(section, url, connections, standing)
                self._checks.append(asyncio.create_task(check, name=f"check upstream {section.id}"))
        return found

    def stop(self) -> None:
        """End what they answer; requests on the road fail with 503."""
        for destination in self._destinations:
            destination.stop()
        for passer in self.passers.values():
            passer.stop()

    async def close(self) -> None:
        """End the checks and the connections."""
        for check in self._checks:
            check.cancel()
        if self._checks:
            await asyncio.wait(self._checks)
        for connections in self._connections:
            connections.close()

    async def _check(self, section: UpstreamSection, url: URL, connections: Connections, standing: Standing) -> None:
        """Ask every so often whether it is well."""
        key = self._keys[section.id]
        headers = {**self._headers[section.id], **({} if key is None else {"Authorization": f"Bearer {key}"})}
        request = head_of("GET", url, headers) + b"\r\n"
        while True:
            why_not = await _ill(connections, request, section.health.timeout_s)
            if standing.checked(well=why_not is None):
                how = "well again" if why_not is None else f"not well: {section.health.path} {why_not}"
                logger.warning("the upstream '%s' is %s", section.id, how)
            await asyncio.sleep(section.health.interval_s)


async def _ill(connections: Connections, request: bytes, timeout_s: float) -> str | None:
    """None where the answer to a check says that all is well, else why not."""
    due = time.monotonic() + timeout_s
    connection: Connection | None = None
    try:
        connection = await connections.open(timeout_s)
        connection.send(request)
        await connection.head(due)
        return None if connection.status < 300 else f"answers with {connection.status}"
    except TimeoutError:
        return f"does not answer within {timeout_s:g} s"
    except (OSError, NotHttpError) as error:
        return f"cannot be asked: {str(error) or type(error).__name__}"
    finally:
        if connection is not None:
            connection.close()
