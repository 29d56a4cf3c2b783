"""The `embeddings:` block of the settings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from headgate.gateway.section import Section

BUNDLED_ID = "all-minilm-l6-v2"


class EmbeddingsSection(Section):
    """The model behind /v1/embeddings."""

    enabled: Literal["auto"] | bool = Field(
        default="auto", description="auto: on where the embedding package is installed."
    )
    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$")] = Field(
        default=BUNDLED_ID, description="The name clients ask for."
    )
    folder: str | None = Field(
        default=None,
        description="Folder of a sentence-transformers model; null: the all-MiniLM-L6-v2 of the package.",
    )
    max_inputs: int = Field(default=2048, ge=1, description="Most texts of one request.")
    max_waiting_tokens: int = Field(
        default=200_000, ge=1, description="Tokens of texts that may wait, all requests of a class; then 503."
    )
    usd_per_million_tokens: float = Field(
        default=0.0, ge=0, description="Price of the tokens that it reads, beside that of the device's time."
    )

    @model_validator(mode="after")
    def _named(self) -> EmbeddingsSection:
        if self.folder is not None and self.id == BUNDLED_ID:
            raise ValueError(f"id is '{BUNDLED_ID}', the bundled model's; give the model of 'folder' an id of its own")
        return self
