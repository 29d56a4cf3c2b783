"""What an operator can set of files and batches."""

from __future__ import annotations

from pydantic import ByteSize, Field, field_validator

from headgate.gateway.configuration.section import Section, TeamName


class StorageSection(Section):
    """Files that clients upload and that batches write."""

    folder: str | None = Field(
        default="auto",
        min_length=1,
        description="auto: headgate in the user's data folder, if no other server uses it; null or off: none; or a "
        "folder, of this server alone.",
    )
    max_file_bytes: ByteSize = Field(default=ByteSize(200_000_000), gt=0, description="Larger uploads get 413.")
    team_bytes: ByteSize = Field(
        default=ByteSize(10_000_000_000), ge=0, description="All files of a team together; what would not fit gets 413."
    )
    team_bytes_by_team: dict[TeamName, ByteSize] = Field(default={}, description="Exceptions from team_bytes, by team.")

    def bytes_of(self, team: str) -> int:
        """Most bytes of a team's files together."""
        return self.team_bytes_by_team.get(team, self.team_bytes)

    @field_validator("folder", mode="before")
    @classmethod
    def _switched_off(cls, value: object) -> object:
        # YAML reads a bare `off` as false.
        return None if value is False or value == "off" else value


class BatchesSection(Section):
    """`/v1/batches`: requests of a file, answered in idle capacity."""

    in_flight: int = Field(
        default=32, ge=1, le=1024, description="Most lines of all batches together that are answered at the same time."
    )
    max_requests: int = Field(default=50_000, ge=1, description="Most lines of one batch.")
    max_active: int = Field(
        default=100, ge=1, description="Most batches of a team that have not ended; a further one gets 429."
    )
