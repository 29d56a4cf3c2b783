"""The block `upstreams:` of the settings."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from headgate.gateway.configuration.routing import BreakerSection, ModelPriceSection
from headgate.gateway.configuration.secret_reference import REFERENCE
from headgate.gateway.configuration.section import ModelId, Section
from headgate.gateway.road.attachments import Input
from headgate.gateway.upstream.endpoints import Serves
from headgate.routing.types import Skill

_OURS = ("authorization", "host", "content-length", "content-type", "accept", "accept-encoding", "connection",
         "transfer-encoding", "x-request-id")  # fmt: skip
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_QUANTILE = re.compile(r"p(\d{1,2})")


class UpstreamTimeoutsSection(Section):
    """How long an upstream may take. All are seconds."""

    connect_s: float = Field(default=5.0, gt=0, description="To a connection, TLS included.")
    attempt_s: float = Field(default=30.0, gt=0, description="From there to the head of the reply.")
    first_token_s: float = Field(default=30.0, gt=0, description="From sending to the first piece of the answer.")
    stall_s: float = Field(
        default=30.0, gt=0, description="Between two pieces of the answer, or comments that say it goes on."
    )
    total_s: float = Field(default=600.0, gt=0, description="The whole answer, with every attempt at it.")


class UpstreamRetriesSection(Section):
    """Trying again what failed before anything of the answer was passed on."""

    most: int = Field(default=2, ge=0, le=10, description="Further attempts; 0: none.")
    within_s: float = Field(default=30.0, gt=0, description="No attempt begins later; a longer hint is not waited for.")
    first_wait_s: float = Field(default=0.25, gt=0, description="Wait before the first where the upstream names none.")
    longest_wait_s: float = Field(default=8.0, gt=0, description="That wait doubles with each attempt up to this.")

    @model_validator(mode="after")
    def _ordered(self) -> UpstreamRetriesSection:
        if self.first_wait_s > self.longest_wait_s:
            raise ValueError(f"first_wait_s ({self.first_wait_s}) must not be above longest_wait_s")
        return self


class UpstreamHedgeSection(Section):
    """A second attempt beside the first where its answer is slow to begin; the one that begins later is cancelled."""

    after: Literal["off"] | Annotated[float, Field(gt=0)] | str = Field(
        default="off",
        description="off, a delay in seconds, or such as p95 a quantile of the upstream's own first-token times.",
    )
    most_share: float = Field(default=0.1, gt=0, le=1, description="Largest share of requests that get a second one.")

    @field_validator("after", mode="before")
    @classmethod
    def _delay(cls, value: object) -> object:
        # YAML reads a bare `off` as false.
        if value is False:
            return "off"
        if value is True or (isinstance(value, str) and value != "off" and quantile_of(value) is None):
            raise ValueError("accepted are off, seconds such as 0.5, or p50 to p99")
        return value


class UpstreamHealthSection(Section):
    """Asking whether an upstream is well, besides what requests find."""

    path: str | None = Field(
        default=None, pattern=r"^/", description="Path on the same host, such as /health or /v1/models; null: none."
    )
    interval_s: float = Field(default=10.0, gt=0, description="Seconds between checks.")
    timeout_s: float = Field(default=2.0, gt=0, description="Seconds a check may take.")
    failures: int = Field(default=2, ge=1, description="Failed checks in a row after which it is left alone.")


class UpstreamPriceSection(ModelPriceSection):
    """What the model costs in money: its tokens and, for what it serves beside chats, what is not paid by the token."""

    usd_per_request: float = Field(default=0.0, ge=0, description="US dollars for each request beside chats.")
    usd_per_image: float = Field(default=0.0, ge=0, description="US dollars for each picture that is asked for.")
    usd_per_million_characters: float = Field(default=0.0, ge=0, description="US dollars for text that is spoken.")
    usd_per_audio_minute: float = Field(
        default=0.0, ge=0, description="US dollars for sound that is heard, where the answer says how long it is."
    )

    def beside_nano_usd(self, images: int, chars: int, seconds: float) -> int:
        """Billionths of a dollar for a request beside chats, but for its tokens.

        Args:
            images: that are asked for.
            chars: that are to be spoken.
            seconds: of sound that was heard.
        """
        usd = self.usd_per_request + images * self.usd_per_image
        usd += chars / 1e6 * self.usd_per_million_characters + seconds / 60 * self.usd_per_audio_minute
        return round(usd * 1e9)


class UpstreamSection(Section):
    """Another OpenAI-compatible server, as one more model."""

    id: ModelId = Field(description="The name clients ask for.")
    base_url: str = Field(description="What comes before /chat/completions, such as http://127.0.0.1:9000/v1.")
    model: str = Field(min_length=1, description="The model's name at that server.")
    serves: frozenset[Serves] = Field(
        default=frozenset({"chat"}),
        min_length=1,
        description="What it is asked for; chat is completions, messages and responses, too.",
    )
    api_key: str | None = Field(
        default=None, pattern=REFERENCE, description="env:NAME or file:PATH of the key; null: none is sent."
    )
    tier: Literal["small", "large"] | None = Field(default=None, description="As models[].tier.")
    context_length: int = Field(
        default=32_768, ge=2, description="Most tokens of prompt and answer: set aside where max_tokens is absent."
    )
    lacks: frozenset[Skill] = Field(default=frozenset(), description="As models[].lacks.")
    inputs: frozenset[Input] = Field(
        default=frozenset(),
        description="What it takes beside text, such as [image]: requests with anything else go elsewhere.",
    )
    input_urls: bool = Field(
        default=False,
        description="Send it http(s) URLs of pictures too, which that server then fetches; false: their data only.",
    )
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens", description="What that server calls the longest answer."
    )
    pass_through_unknown: bool = Field(
        default=False, description="Send fields on that Headgate does not know, instead of refusing them."
    )
    headers: dict[str, str] = Field(
        default={}, repr=False, description="Further request headers; a value may be a reference as api_key is."
    )
    price: UpstreamPriceSection = UpstreamPriceSection()
    timeouts: UpstreamTimeoutsSection = UpstreamTimeoutsSection()
    retries: UpstreamRetriesSection = UpstreamRetriesSection()
    hedge: UpstreamHedgeSection = UpstreamHedgeSection()
    breaker: BreakerSection | None = Field(default=None, description="null: as routing.breaker.")
    health: UpstreamHealthSection = UpstreamHealthSection()

    @model_validator(mode="after")
    def _tiers_are_of_chats(self) -> UpstreamSection:
        if self.tier is not None and "chat" not in self.serves:
            raise ValueError(f"tier is for what serves chat; '{self.id}' serves {', '.join(sorted(self.serves))}")
        return self

    @field_validator("base_url")
    @classmethod
    def _usable(cls, value: str) -> str:
        if problem := url_problem(value):
            raise ValueError(f"{problem}; accepted is http(s)://host[:port][/path]")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _seeing(self) -> UpstreamSection:
        if "vision" in self.lacks and "image" in self.inputs:
            raise ValueError("lacks has vision and inputs has image; take one of them out")
        if self.input_urls and "image" not in self.inputs:
            raise ValueError("input_urls is true, but inputs does not have image, whose URLs they would be")
        return self

    @field_validator("headers")
    @classmethod
    def _allowed(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not _HEADER.fullmatch(name):
                raise ValueError(f"'{name}' is no name of a header")
            if name.lower() in _OURS:
                hint = "; give the key as api_key" if name.lower() == "authorization" else ""
                raise ValueError(f"the header '{name}' is set by Headgate{hint}")
            if "\n" in value or "\r" in value:
                raise ValueError(f"the value of '{name}' has a line break")
        return headers


def url_problem(url: str) -> str | None:
    """What is wrong with the URL of an upstream, without repeating it: it may hold a password. None: nothing."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "not a URL with a port between 1 and 65535"
    if parts.scheme not in ("http", "https"):
        return "not an http:// or https:// URL"
    if not parts.hostname or port == 0:
        return "a URL without a host or with port 0"
    if parts.username is not None or parts.password is not None:
        return "a URL with a user or a password, which would be seen; give api_key a reference instead"
    if parts.query or parts.fragment:
        return "a URL with a query or a fragment"
    return None


def quantile_of(after: str) -> float | None:
    """0.95 for `p95`; None for what is no quantile from p50 to p99."""
    found = _QUANTILE.fullmatch(after)
    if found is None or not 50 <= int(found.group(1)) <= 99:
        return None
    return int(found.group(1)) / 100
