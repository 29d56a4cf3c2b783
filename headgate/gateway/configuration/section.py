"""What every block of the settings has in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

RESERVED_IDS = ("auto", "small", "large")


def _not_reserved(value: str) -> str:
    if value in RESERVED_IDS:
        raise ValueError(f"'{value}' is a route, not an id; give the model another id and set its tier")
    return value


ModelId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$"), AfterValidator(_not_reserved)]
HandOver = Annotated[str, Field(min_length=1, max_length=200)]
TeamName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Section(BaseModel):
    """A block of keys. Unknown keys are refused, and numbers without end."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
