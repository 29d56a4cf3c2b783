"""The block `routing:` of the settings, and what else an operator says of models so that they can be chosen between."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ByteSize, Field, field_validator, model_validator

from headgate.gateway.configuration.section import Section
from headgate.routing.cascade import HELD_TOKENS, QUANTILES

Names = Annotated[tuple[str, ...], Field(min_length=1)]


class ModelPriceSection(Section):
    """What a model's tokens cost in money, beside the device's time."""

    usd_per_million_prompt_tokens: float = Field(default=0.0, ge=0, description="US dollars; 0: nothing.")
    usd_per_million_completion_tokens: float = Field(default=0.0, ge=0, description="US dollars; 0: nothing.")
    usd_per_million_cached_tokens: float | None = Field(
        default=None, ge=0, description="Of prompt tokens that were cached; null: as the others of the prompt."
    )


class CascadeSection(Section):
    """The small model answers, and the large one where the small one was not sure."""

    enabled: bool = Field(default=False, description="Whether small models' answers to `auto` are checked.")
    quantile: float = Field(
        default=0.1, ge=0, le=1, description="Share of the tokens that may be less probable than least_probability."
    )
    least_probability: float = Field(
        default=0.5, gt=0, le=1, description="Probability that the token at the quantile must have."
    )
    max_loss: float | None = Field(
        default=None, ge=0, le=1, description="As routing.max_loss, kept by the cascade alone; null: least_probability."
    )
    hold_tokens: int = Field(default=32, ge=1, le=4096, description="Tokens held back, at most, to find out.")
    hold_ms: float = Field(default=2000.0, gt=0, le=60_000, description="Milliseconds the same may take, at most.")

    @model_validator(mode="after")
    def _as_calibrated(self) -> CascadeSection:
        if self.max_loss is not None and self.quantile not in QUANTILES:
            shown = ", ".join(f"{one:g}" for one in QUANTILES)
            raise ValueError(f"with max_loss, quantile is one of {shown}, which are calibrated; got {self.quantile:g}")
        if self.max_loss is not None and self.hold_tokens != HELD_TOKENS:
            raise ValueError(f"with max_loss, hold_tokens is {HELD_TOKENS}, as calibrated; got {self.hold_tokens}")
        return self


class PolicySection(Section):
    """What a team or a key has otherwise than `routing` in the main file. null leaves it as it is there."""

    threshold: float | None = Field(default=None, ge=0, le=1, description="As routing.threshold.")
    chain: Names | None = Field(default=None, description="As routing.chain.")
    escalations: float | None = Field(default=None, ge=0, le=1, description="As routing.escalations.")
    cascade: CascadeSection | None = Field(default=None, description="As routing.cascade, as a whole.")
    outcomes: bool | None = Field(default=None, description="Whether its requests' outcomes may be kept to learn from.")

    @field_validator("chain")
    @classmethod
    def _distinct(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return each_once(names)


class SessionSection(Section):
    """Conversations stay with their model, whose cache holds their beginning."""

    most: int = Field(default=10_000, ge=0, description="Conversations remembered; 0: every turn is chosen afresh.")
    switch_gain: float = Field(
        default=0.2, ge=0, le=1, description="Share of the price another model must save for one to move there."
    )
    band: float = Field(
        default=0.05, ge=0, le=1, description="How far above the threshold one must be to go back to the small model."
    )


class BreakerSection(Section):
    """When a model that fails is left alone."""

    failures: int = Field(default=3, ge=1, description="Failures in a row after which it is.")
    open_s: float = Field(default=5.0, gt=0, description="Seconds until one request tries it again.")
    longest_s: float = Field(default=60.0, gt=0, description="That pause doubles with each failed trial up to this.")

    @model_validator(mode="after")
    def _ordered(self) -> BreakerSection:
        if self.open_s > self.longest_s:
            raise ValueError(f"open_s ({self.open_s}) must not be above longest_s ({self.longest_s})")
        return self


class PriceSection(Section):
    """What the price of an answer is made of."""

    signals: frozenset[Literal["queue", "kv"]] = Field(
        default=frozenset({"queue", "kv"}),
        description="Live figures that count: queue (who waits and runs), kv (what of the prompt is cached).",
    )
    usd_per_waited_hour: float = Field(
        default=0.0, ge=0, description="What an hour less of waiting may cost, in US dollars; 0: money does not count."
    )


class OutcomesSection(Section):
    """Outcomes of the gateway's own requests, for `headgate route learn --outcomes`: never a word of them."""

    file: str | None = Field(default=None, description="File of JSON lines; null: none are kept.")
    max_bytes: ByteSize = Field(default=ByteSize(64 << 20), gt=0, description="Size of it; then the older half goes.")
    share: float = Field(
        default=0.02, ge=0, le=1, description="Share of `auto` requests that the other model answers too, to compare."
    )
    allow: bool = Field(default=False, description="Whether teams that say nothing of it themselves take part.")


class RoutingSection(Section):
    """How `auto`, `small` and `large` become a model."""

    quality: str | None = Field(
        default="bundled",
        description="File of `headgate route learn`; bundled: the demo pair's; null: task classes decide.",
    )
    classes: tuple[str, ...] = Field(default=(), description="Files of task classes besides those that ship.")
    probe: bool = Field(
        default=False,
        description="Whether the small model reads every `auto` request first, so that its state tells more.",
    )
    judge_cores: bool = Field(
        default=False,
        description="Whether ends of the text are judged too, which a prefix cannot talk into the large model.",
    )
    max_loss: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Of the requests a large model answers rightly, the share that `auto` may answer wrongly.",
    )
    max_device_s_per_1000: float | None = Field(
        default=None,
        gt=0,
        description="Instead of max_loss: device seconds 1,000 `auto` requests may take, as was measured for them.",
    )
    threshold: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="How likely it must be that a small model loses nothing against the large one; null: by max_loss.",
    )
    chain: Names | None = Field(
        default=None, description="Ids in the order in which others are tried; null: the cheapest first."
    )
    max_queue: int = Field(default=256, ge=1, description="Requests waiting for a model from which others are taken.")
    max_wait_s: float = Field(
        default=30.0, gt=0, description="Queues longer than this are left to requests that have no choice."
    )
    takeover_s: float = Field(
        default=5.0, gt=0, le=60, description="How long a model may fail before its first token and be replaced."
    )
    escalations: float = Field(
        default=1.0, ge=0, le=1, description="Largest share of a window's `auto` requests that may go to a large model."
    )
    escalation_window_s: float = Field(default=3600.0, gt=0, description="Seconds of that window; it slides.")
    price: PriceSection = PriceSection()
    sessions: SessionSection = SessionSection()
    breaker: BreakerSection = BreakerSection()
    cascade: CascadeSection = CascadeSection()
    outcomes: OutcomesSection = OutcomesSection()

    @field_validator("chain")
    @classmethod
    def _distinct(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return each_once(names)

    @model_validator(mode="after")
    def _one_guard(self) -> RoutingSection:
        if self.probe and self.judge_cores:
            raise ValueError("judge_cores is of estimates from embeddings, which probe replaces; set one of the two")
        return self


def each_once(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The names; ValueError where one comes twice."""
    if names is not None and len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"'{twice}' is given twice")
    return names
