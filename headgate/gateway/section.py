"""What every block of the settings has in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

TeamName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Section(BaseModel):
    """A block of keys. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
