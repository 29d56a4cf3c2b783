"""The block `cache:` of the settings."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import ByteSize, Field, field_validator, model_validator

from headgate.gateway.configuration.secret_reference import REFERENCE
from headgate.gateway.configuration.section import Section


class ExactCacheSection(Section):
    """Answers to requests asked before, word for word."""

    enabled: bool = Field(default=True, description="false switches all caching of answers off.")
    ttl_s: float = Field(default=3600.0, gt=0, description="Seconds until a stored answer is forgotten.")
    time_sensitive_ttl_s: float = Field(
        default=60.0, ge=0, description="The same for questions about now (today, latest, ...); 0 stores none of them."
    )
    max_temperature: float = Field(
        default=0.0, ge=0, le=2, description="Above it an answer is stored only with a seed or where the client asks."
    )
    tool_results: bool = Field(
        default=False, description="Store answers to conversations with results of tools without the client's asking."
    )
    normalize_text: bool = Field(
        default=False, description="Take texts that differ in white space or Unicode form for the same request."
    )
    max_bytes: ByteSize = Field(default=ByteSize(64 << 20), gt=0, description="Memory for stored answers.")


class AuditSection(Section):
    """Audits of hits served by meaning: the model answers the question too, in steps that nobody waits for."""

    enabled: bool = Field(default=True, description="false audits nothing; what was found wrong is not served still.")
    share: float = Field(default=0.05, gt=0, le=1, description="Share of hits that are audited while users wait.")
    idle_share: float = Field(default=1.0, gt=0, le=1, description="Share of hits that are audited while nobody does.")
    queue: int = Field(default=64, ge=1, description="Audits that may wait for an idle engine; more are dropped.")
    alpha: float = Field(
        default=0.05, gt=0, lt=1, description="Probability that the measured wrong share's interval may fail."
    )
    labels: str | None = Field(
        default=None,
        description="File of `headgate bench audit --write`: how far labels of your model are to be trusted.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> AuditSection:
        if self.idle_share < self.share:
            raise ValueError(f"idle_share ({self.idle_share}) must not be below share ({self.share})")
        return self


class SemanticCacheSection(Section):
    """Answers to questions that mean the same."""

    enabled: Literal["auto"] | bool = Field(
        default="auto", description="auto: on where the embedding package is installed."
    )
    max_error: float = Field(
        default=0.02,
        gt=0,
        lt=1,
        description="Share of wrong answers accepted among those served by meaning; a request may ask for fewer.",
    )
    traffic: Literal["natural", "heavy", "adversarial"] = Field(
        default="natural",
        description="How many requests are near misses of others, about 2, 20 or 50 %: more, and fewer are served.",
    )
    near_similarity: float = Field(
        default=0.6, ge=0, le=1, description="Cosine similarity from which a stored answer is looked at."
    )
    max_chars: int = Field(default=1000, ge=1, description="Longer texts are never served another text's answer.")
    wait_s: float = Field(
        default=1.0, ge=0, le=60, description="Longest wait for the answer to a similar question being made; 0: none."
    )
    embedder: str | None = Field(
        default=None, description="Folder of a sentence-transformers model; null: all-MiniLM-L6-v2."
    )

    audit: AuditSection = AuditSection()


class CacheSection(Section):
    """The answer cache."""

    share: Literal["team", "user"] = Field(
        default="team", description="Who shares answers: the keys of a team, or each key and end user has its own."
    )
    insert_share: float = Field(
        default=0.5, ge=0.5, le=1, description="Most of a team's new answers of an hour that one key may make; 1: all."
    )
    inserts_per_hour: int | None = Field(
        default=None, ge=1, description="New answers that one key may have kept in an hour, alone in its team or not."
    )
    epoch: str = Field(default="", max_length=64, description="Any text; a new one makes all older answers unfindable.")
    journal: str | None = Field(
        default=None,
        min_length=1,
        description="Folder that keeps labels, a raised threshold and the epoch for the next start; with Redis that "
        "does, and null keeps them nowhere.",
    )
    exact: ExactCacheSection = ExactCacheSection()
    semantic: SemanticCacheSection = SemanticCacheSection()
    redis: str | None = Field(
        default="auto",
        # It may hold a password.
        repr=False,
        description="auto: the server at REDIS_URL or on this machine, if it answers; null or off: none; or a URL.",
    )
    redis_timeout_s: float = Field(
        default=0.1, gt=0, le=10, description="Seconds Redis has to answer; then a request goes on without."
    )
    secret: str | None = Field(
        default=None,
        pattern=REFERENCE,
        description="env:NAME or file:PATH with at least 16 bytes that key the fingerprints; null: random per start.",
    )

    @field_validator("redis", mode="before")
    @classmethod
    def _redis_server(cls, value: object) -> object:
        # YAML reads a bare `off` as false.
        if value is False or value == "off":
            return None
        if isinstance(value, str) and value != "auto" and (problem := redis_url_problem(value)):
            raise ValueError(f"{problem}; accepted are auto, off, null or redis://[user:password@]host[:port][/db]")
        return value


def redis_url_problem(url: str) -> str | None:
    """What is wrong with the URL of a Redis server, without repeating it: it may hold a password. None: nothing."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "not a URL with a port between 1 and 65535 (a password's special characters must be percent-encoded)"
    if parts.scheme not in ("redis", "rediss"):
        return "not a redis:// or rediss:// URL"
    if not parts.hostname or port == 0:
        return "a URL without a host or with port 0"
    if not re.fullmatch(r"/?|/\d{1,4}", parts.path) or parts.query or parts.fragment:
        return "a URL with more behind the host than a database number"
    return None
