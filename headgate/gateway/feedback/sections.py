"""The block `feedback:` of the settings."""

from __future__ import annotations

from pydantic import Field

from headgate.gateway.section import Section


class FeedbackSection(Section):
    """What apps say of answers at `/v1/feedback`."""

    most: int = Field(
        default=10_000, ge=0, description="Latest answers of each team that may be rated, and ratings kept; 0: none."
    )
    voices: int = Field(
        default=3,
        ge=0,
        le=10,
        description="End users that must call a stored answer bad for it to be kept from similar questions; 0: never.",
    )
