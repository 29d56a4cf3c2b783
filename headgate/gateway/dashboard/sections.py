"""The `dashboard:` block of the settings."""

from __future__ import annotations

from pydantic import Field

from headgate.gateway.section import Section


class DashboardSection(Section):
    """The operator's page."""

    enabled: bool = Field(default=True, description="Serve /dashboard, whose figures a key with the role admin sees.")
    requests: int = Field(
        default=2000, ge=1, le=100_000, description="Requests that ended last and can be explained; never content."
    )
