"""What an upstream may serve beside chats: where it is asked for it, and what it may answer with.

The body of such a request is passed on, but for the model's name, and the answer as it comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Serves = Literal[
    "chat",
    "embeddings",
    "rerank",
    "score",
    "moderations",
    "speech",
    "transcriptions",
    "translations",
    "images",
]

JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One of them."""

    serves: Serves
    path: str
    """Below the base URL of an upstream, and below /v1 for clients."""
    form: bool = False
    """Whether its body is a form with a file, and not JSON."""
    kinds: tuple[str, ...] = (JSON,)
    """How the content types begin that it may answer with."""
    late: bool = False
    """Whether an answer takes long to begin: the head of one that is not streamed comes when all of it is made."""
    reads: bool = False
    """Whether the texts of its body are what the model's tokens are of."""

    def takes(self, kind: str) -> bool:
        """Whether an answer may have this content type, in small letters and without parameters."""
        return kind.startswith(self.kinds) and kind != "text/html"


EMBEDDINGS = Endpoint("embeddings", "/embeddings", reads=True)
RERANK = Endpoint("rerank", "/rerank", reads=True)
SCORE = Endpoint("score", "/score", reads=True)
MODERATIONS = Endpoint("moderations", "/moderations", reads=True)
SPEECH = Endpoint("speech", "/audio/speech", kinds=("audio/", "application/octet-stream", EVENTS))
TRANSCRIPTIONS = Endpoint(
    "transcriptions", "/audio/transcriptions", form=True, kinds=(JSON, "text/", "application/x-subrip"), late=True
)
TRANSLATIONS = Endpoint(
    "translations", "/audio/translations", form=True, kinds=(JSON, "text/", "application/x-subrip"), late=True
)
IMAGES = Endpoint("images", "/images/generations", kinds=(JSON, EVENTS), late=True)
IMAGE_EDITS = Endpoint("images", "/images/edits", form=True, kinds=(JSON, EVENTS), late=True)

ENDPOINTS = (
    EMBEDDINGS, RERANK, SCORE, MODERATIONS, SPEECH, TRANSCRIPTIONS, TRANSLATIONS, IMAGES, IMAGE_EDITS,
)  # fmt: skip
