"""The files that the page is made of, read once, with the headers under which a browser runs nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files

from aiohttp import web

PAGE = "index.html"
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Asked again each time, and sent again when it changed: a new version shows at once.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file."""

    body: bytes
    kind: str
    tag: str

    def response(self, known: str | None) -> web.Response:
        """The file, or that the browser has it: `known` is its If-None-Match."""
        headers = {**_HEADERS, "ETag": self.tag}
        if known is not None and self.tag in known:
            return web.Response(status=304, headers=headers)
        return web.Response(body=self.body, content_type=self.kind, charset="utf-8", headers=headers)


def page_files() -> dict[str, PageFile]:
    """All of them, by name."""
    found = {}
    for entry in (files("headgate.gateway.dashboard") / "static").iterdir():
        body, kind = entry.read_bytes(), _TYPES[entry.name.rpartition(".")[2]]
        found[entry.name] = PageFile(body, kind, f'"{blake2b(body, digest_size=8).hexdigest()}"')
    return found
