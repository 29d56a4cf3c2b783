"""What a team file says: who the team is, its keys, and what it may do. Units are in the names."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import AwareDatetime, ByteSize, Field, field_validator, model_validator

from headgate.gateway.configuration.routing import Names, PolicySection, each_once
from headgate.gateway.configuration.secret_reference import REFERENCE
from headgate.gateway.configuration.section import Section, TeamName
from headgate.gateway.teams.iso_time import moment

KeyId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Role = Literal["member", "admin"]

HASH_PATTERN = r"^sha256:[0-9a-f]{32}:[0-9a-f]{64}$"
"""Of a key's salted hash: salt and digest in hexadecimal."""


class TeamSection(Section):
    """Whose file it is."""

    name: TeamName = Field(description="Names the team in logs, metrics and other teams' sight; scopes its cache.")
    owner: str = Field(default="", max_length=200, description="Whom to ask about the team; for the reader.")


class RatesSection(Section):
    """What may be asked at once and in a minute; null: no limit of its own."""

    requests_per_minute: int | None = Field(default=None, ge=1, description="As limits.requests_per_minute.")
    tokens_per_minute: int | None = Field(default=None, ge=1, description="As limits.tokens_per_minute.")
    concurrency: int | None = Field(default=None, ge=1, description="As limits.concurrency.")


class KeyLimitsSection(RatesSection):
    """Limits of one key, beside its team's, which hold too. null: the team's only."""

    max_tokens: int | None = Field(default=None, ge=1, description="As limits.max_tokens; the lower one holds.")
    max_context_tokens: int | None = Field(
        default=None, ge=2, description="As limits.max_context_tokens; the lower one holds."
    )
    max_n: int | None = Field(default=None, ge=1, description="As limits.max_n; the lower one holds.")


class TeamKeySection(Section):
    """An API key: by its hash, or by where its secret is. The secret itself is never written here."""

    id: KeyId = Field(description="Names the key in logs; not secret, and nobody else's in any file.")
    hash: str | None = Field(
        default=None, pattern=HASH_PATTERN, description="sha256:SALT:DIGEST, as `headgate keys create` writes it."
    )
    secret: str | None = Field(
        default=None,
        # A secret written here by mistake is shown nowhere.
        repr=False,
        description="Instead of hash: env:NAME of a variable, or file:PATH of a file, that holds the key.",
    )
    role: Role = Field(default="member", description="admin may use /admin; member may not.")
    created: AwareDatetime | None = Field(default=None, description="When it was made; for the reader.")
    expires: AwareDatetime | None = Field(
        default=None, description="From then on the key is refused, such as 2027-06-30 (of UTC); null: never."
    )
    models: Names | None = Field(default=None, description="Ids of the models it may ask, of its team's; null: all.")
    limits: KeyLimitsSection = KeyLimitsSection()
    routing: PolicySection = PolicySection()

    @field_validator("created", "expires", mode="before")
    @classmethod
    def _moment(cls, given: object) -> object:
        if not isinstance(given, str | date):
            return given
        try:
            return moment(given)
        except ValueError:
            return given  # which is refused in words that do not repeat it

    @field_validator("secret")
    @classmethod
    def _reference(cls, given: str | None) -> str | None:
        if given is not None and not re.fullmatch(REFERENCE, given):
            raise ValueError("expected env:NAME or file:PATH; a key itself is never written here")
        return given

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.hash is None) == (self.secret is None):
            raise ValueError(f"the key '{self.id}' needs either 'hash' or 'secret', and not both")
        return self


class ModelsSection(Section):
    """Which models a team may ask, and by which names."""

    allow: Names | None = Field(default=None, description="Ids of the models that may be asked; null: all.")
    deny: tuple[str, ...] = Field(default=(), description="Ids of those that may not, whatever allow says.")
    aliases: dict[str, str] = Field(
        default={}, description="Further names, such as {gpt-4o: large}: each means a model, auto, small or large."
    )
    default: str | None = Field(
        default=None, description="What requests without a model ask: an id, a name of aliases, auto, small or large."
    )
    drop_params: bool = Field(
        default=False,
        description="Leave parameters of chats and completions out that are not supported, instead of refusing them; "
        "x-headgate-dropped names them.",
    )

    @field_validator("allow", "deny")
    @classmethod
    def _distinct(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return each_once(names)


class UserLimitsSection(RatesSection):
    """Limits of each end user of the team, whom requests name by `safety_identifier` or `user`; null: none."""


class LimitsSection(Section):
    """What a team may ask at once and in a minute. null sets no limit."""

    requests_per_minute: int | None = Field(default=None, ge=1, description="Requests a minute; more get 429.")
    tokens_per_minute: int | None = Field(
        default=None, ge=1, description="Tokens of prompts and answers a minute; more get 429."
    )
    concurrency: int | None = Field(default=None, ge=1, description="Requests at the same time; more get 429.")
    max_tokens: int | None = Field(default=None, ge=1, description="Longest answer that a request may ask for.")
    max_context_tokens: int | None = Field(default=None, ge=2, description="Most tokens of prompt and answer together.")
    max_n: int | None = Field(default=None, ge=1, description="Most choices, or pictures, of one request.")
    max_body_bytes: ByteSize | None = Field(
        default=None, gt=0, description="Larger request bodies get 413; never more than server.max_body_bytes."
    )
    per_user: UserLimitsSection = UserLimitsSection()


class BudgetsSection(Section):
    """What a team may spend. null sets no bound."""

    daily_usd: float | None = Field(default=None, ge=0, description="US dollars a day.")
    monthly_usd: float | None = Field(default=None, ge=0, description="US dollars a calendar month.")
    daily_device_s: float | None = Field(default=None, ge=0, description="Seconds of the device's time a day.")
    monthly_device_s: float | None = Field(default=None, ge=0, description="The same a calendar month.")
    soft_percent: float = Field(
        default=80.0, gt=0, le=100, description="Share of a budget, in percent, from which on replies and log warn."
    )
    on_exceed: Literal["block", "downgrade", "queue"] = Field(
        default="block",
        description="Then: block refuses with 429; downgrade answers by the small model; queue waits for the device "
        "to be idle.",
    )
    timezone: str = Field(default="UTC", description="Where days and months begin, such as Europe/Berlin.")

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (LookupError, OSError, ValueError):
            message = f"there is no time zone '{name}' here; expected a name such as UTC or Europe/Berlin"
            raise ValueError(message) from None
        return name


class SchedulingSection(Section):
    """How a team's requests stand among others'."""

    priority: Literal["interactive", "standard", "batch"] = Field(
        default="standard",
        description="Class of requests that ask for no service_tier: interactive are read before all others; batch get "
        "what others leave of the engine.",
    )
    allow_priority: bool = Field(
        default=False, description="Whether requests may ask for service_tier: priority, which makes them interactive."
    )
    weight: float = Field(default=1.0, gt=0, le=1000, description="Share of the engine relative to other teams'.")
    max_queue_s: float | None = Field(
        default=None, gt=0, description="Requests that would wait longer are refused with 503; null: routing decides."
    )


class PromptsSection(Section):
    """What is said before everything that users say."""

    system_prepend: str | None = Field(
        default=None, min_length=1, description="Text put before the system prompt of every conversation; null: none."
    )
    pinned: tuple[str, ...] = Field(
        default=(),
        description="System prompts, as clients send them, that stay computed in the cache of each model; empty: "
        "of conversations without.",
    )


class ExperimentsSection(Section):
    """Comparing models on a team's own traffic."""

    weights: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default={},
        description="Of the requests for auto, how many each model answers instead of the router's choice, such as "
        "{demo-student: 9, demo-teacher: 1}; a conversation stays with one. Empty: the router chooses.",
    )
    shadow: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(
        default={},
        description="Models that answer a share of the requests too, such as {demo-teacher: 0.1}, to be compared: in "
        "steps that nobody wants, shown to nobody and charged to no budget.",
    )


class TeamCacheSection(Section):
    """What a team has otherwise than `cache` in the main file. null leaves it as it is there."""

    enabled: bool | None = Field(default=None, description="false keeps none of the team's answers and serves none.")
    share: Literal["team", "user"] | None = Field(default=None, description="As cache.share.")
    ttl_s: float | None = Field(default=None, gt=0, description="As cache.exact.ttl_s.")
    max_error: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Share of wrong answers accepted, at most cache.semantic.max_error; 0: none is served by meaning.",
    )


def content_level(value: object) -> object:
    """YAML reads a bare `off` as false."""
    return "off" if value is False else value


class TeamLoggingSection(Section):
    """What a team has otherwise than `logging` in the main file. null leaves it as it is there."""

    content: Literal["off", "redacted", "full"] | None = Field(default=None, description="As logging.content.")

    _off = field_validator("content", mode="before")(content_level)


class TeamFeedbackSection(Section):
    """What a team's apps may say of the answers they were given."""

    enabled: bool = Field(default=True, description="false: its answers are not remembered, and none is rated.")


class DefaultsSection(Section):
    """What holds for every team whose own file says nothing else."""

    models: ModelsSection = ModelsSection()
    limits: LimitsSection = LimitsSection()
    budgets: BudgetsSection = BudgetsSection()
    scheduling: SchedulingSection = SchedulingSection()
    prompts: PromptsSection = PromptsSection()
    experiments: ExperimentsSection = ExperimentsSection()
    feedback: TeamFeedbackSection = TeamFeedbackSection()


class TeamPolicy(DefaultsSection):
    """What holds for a team: the block `defaults` of the main file, with what the team's file says otherwise."""

    routing: PolicySection = PolicySection()
    cache: TeamCacheSection = TeamCacheSection()
    logging: TeamLoggingSection = TeamLoggingSection()


class TeamFile(TeamPolicy):
    """A team file."""

    team: TeamSection
    keys: tuple[TeamKeySection, ...] = Field(default=(), description="Its API keys; none: nobody can ask.")

    @field_validator("keys")
    @classmethod
    def _distinct(cls, keys: tuple[TeamKeySection, ...]) -> tuple[TeamKeySection, ...]:
        seen: set[str] = set()
        for key in keys:
            if key.id in seen:
                raise ValueError(f"the key '{key.id}' is given twice")
            seen.add(key.id)
        return keys
