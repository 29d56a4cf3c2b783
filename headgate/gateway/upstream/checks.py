"""What the block `upstreams:` says that cannot all be meant, or refers to that is not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headgate.gateway.configuration.document import Keys
from headgate.gateway.configuration.secret_reference import resolved, variable_of
from headgate.gateway.settings import Settings


def upstream_problems(settings: Settings) -> Iterator[tuple[Keys, str]]:
    """Names that are taken already."""
    models, embeddings = {m.id for m in settings.local}, settings.embeddings.id
    for at, upstream in enumerate(settings.upstreams):
        if upstream.id in models:
            yield ("upstreams", at, "id"), f"'{upstream.id}' is also the id of a model; give one of them another"
        if upstream.id == embeddings:
            yield ("upstreams", at, "id"), f"'{upstream.id}' is also embeddings.id; give one of them another"


def missing_secrets(settings: Settings, environ: Mapping[str, str]) -> Iterator[tuple[Keys, str]]:
    """References that lead nowhere; never what they lead to."""
    for at, upstream in enumerate(settings.upstreams):
        given: dict[Keys, str] = {("headers", name): value for name, value in upstream.headers.items()}
        if upstream.api_key is not None:
            given = {("api_key",): upstream.api_key, **given}
        for keys, value in given.items():
            try:
                resolved(value, environ)
            except ValueError as error:
                yield ("upstreams", at, *keys), str(error)


def variables(settings: Settings) -> frozenset[str]:
    """Variables that hold secrets of upstreams."""
    references = [u.api_key for u in settings.upstreams] + [v for u in settings.upstreams for v in u.headers.values()]
    return frozenset(filter(None, map(variable_of, references)))
