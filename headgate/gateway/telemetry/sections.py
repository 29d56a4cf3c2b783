"""What an operator can set about logs, metrics and traces."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from headgate.gateway.configuration.section import Section
from headgate.gateway.teams.sections import content_level


class LoggingSection(Section):
    """What is written to the log."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least severity shown.")
    access: Literal["json", "text", "off"] = Field(
        default="json", description="A line per request, as JSON or as words; never content. true means json."
    )
    content: Literal["off", "redacted", "full"] = Field(
        default="off",
        description="What was asked and answered, a JSON line per request: off, redacted (without addresses, long "
        "numbers and keys) or full.",
    )
    file: str | None = Field(
        default=None,
        min_length=1,
        description="Where the lines of requests and their content go; null: stderr. Made anew when it was moved.",
    )

    _off = field_validator("content", mode="before")(content_level)

    @field_validator("access", mode="before")
    @classmethod
    def _switch(cls, value: object) -> object:
        # YAML reads a bare `off` as false, and the key was a switch once.
        return {True: "json", False: "off"}[value] if isinstance(value, bool) else value


class OtelSection(Section):
    """Spans and metrics by OpenTelemetry, sent to a collector. Needs the extra `headgate[otel]`."""

    enabled: bool = Field(default=False, description="Whether a span of each request, and metrics, are sent.")
    endpoint: str = Field(
        default="http://127.0.0.1:4318",
        pattern=r"^https?://\S+$",
        description="Where the collector takes OTLP over HTTP; /v1/traces and /v1/metrics are appended.",
    )
    headers: dict[str, str] = Field(
        default={}, description="Sent along, such as {authorization: env:OTEL_TOKEN}; env: and file: refer to secrets."
    )
    sample_ratio: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Share of the requests whose spans are kept; one that came with a traceparent is kept as it says.",
    )
    service_name: str = Field(default="headgate", min_length=1, description="By which the collector knows this server.")


class TelemetrySection(Section):
    """What is measured beyond Headgate's own metrics, which are always at /metrics."""

    vllm_names: bool = Field(
        default=False,
        description="Also publish the engine's figures under vLLM's metric names, for dashboards and routers that "
        "read those.",
    )
    otel: OtelSection = OtelSection()
