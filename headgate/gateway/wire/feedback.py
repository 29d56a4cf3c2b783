"""`POST /v1/feedback` and `GET /v1/feedback/{id}`: the wire types."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from headgate.gateway.feedback.records import Cause, Rating
from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import ApiError, invalid


class FeedbackRequest(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How an answer was: one of `score` and `good`."""

    id: Annotated[str, Meta(min_length=1, max_length=128, description="The reply's `id`, such as chatcmpl-….")]
    score: Annotated[float, Meta(ge=0, le=1, description="From 0, useless, to 1; good from 0.5 on.")] | None = None
    good: Annotated[bool | None, Meta(description="true is a score of 1, false of 0.")] = None
    comment: Annotated[str, Meta(max_length=2000, description="Kept with the rating; in no log.")] | None = None
    end_user: (
        Annotated[str, Meta(max_length=128, description="Who says it; by default the request's `user`.")] | None
    ) = None


class FeedbackBody(Struct):
    """What was said of an answer last."""

    id: str
    object: Literal["feedback"]
    created_at: int
    score: float
    good: bool
    comment: str | None
    end_user: str | None
    model: str
    cause: Cause
    """Whether the answer was generated, or came from the cache: exact or semantic."""
    updated: bool
    """Whether it takes the place of what was said before."""


class FeedbackLine(FeedbackBody):
    """The same, of whichever team."""

    team: str
    key: str | None
    """That brought it."""


def parse_feedback(body: bytes) -> tuple[FeedbackRequest, float]:
    """The feedback in `body` and its score; ApiError 400 where it is malformed."""
    wire = decode(body, FeedbackRequest)
    if (wire.score is None) == (wire.good is None):
        code = "missing_required_parameter" if wire.score is None else "invalid_value"
        raise invalid("Expected exactly one of 'score' and 'good'.", "score", code)
    return wire, float(bool(wire.good)) if wire.score is None else wire.score


def feedback_body(rating: Rating, *, updated: bool) -> FeedbackBody:
    """A rating as its team sees it."""
    answer = rating.answer
    return FeedbackBody(
        answer.id, "feedback", int(rating.at), rating.score, rating.good, rating.comment or None,
        rating.end_user or None, answer.model, answer.cause, updated,
    )  # fmt: skip


def feedback_line(rating: Rating) -> FeedbackLine:
    """A rating as operators see it."""
    own = asdict(feedback_body(rating, updated=False))
    return FeedbackLine(**own, team=rating.answer.team, key=rating.key or None)


def feedback_off() -> ApiError:
    """404: this server takes none."""
    return ApiError(404, "This server takes no feedback: feedback.most is 0.", code="feedback_off")
