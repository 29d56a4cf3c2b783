"""What an operator can set. No file is needed: every key has a default, and the default is the embedded demo pair."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Literal
from urllib.parse import urlsplit

from pydantic import ByteSize, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from headgate.engine.text.tool_calls import ToolFormat
from headgate.gateway.dashboard.sections import DashboardSection
from headgate.gateway.embedding_settings import EmbeddingsSection
from headgate.gateway.feedback.sections import FeedbackSection
from headgate.gateway.routing_settings import ModelPriceSection, RoutingSection
from headgate.gateway.secret_reference import REFERENCE
from headgate.gateway.section import HandOver, ModelId, Section
from headgate.gateway.sleep_settings import SleepSection
from headgate.gateway.storage.sections import BatchesSection, StorageSection
from headgate.gateway.teams.sections import DefaultsSection
from headgate.gateway.telemetry.sections import LoggingSection, TelemetrySection
from headgate.gateway.upstream.sections import UpstreamSection
from headgate.routing.types import Need

ENV_PREFIX = "HEADGATE_"
DEMO_PATHS = ("demo:student", "demo:teacher")
TEAMS_FOLDER = "config/teams"

MIB = 1024 * 1024
GIB = 1024 * MIB


def _bytes(count: int) -> ByteSize:
    return ByteSize(count)


class ServerSettings(Section):
    """The HTTP edge."""

    host: str = Field(
        default="127.0.0.1", min_length=1, description="Address to listen on; 0.0.0.0 listens everywhere."
    )
    port: int = Field(default=8000, ge=0, le=65535, description="TCP port; 0 takes a free one.")
    max_body_bytes: ByteSize = Field(default=_bytes(10_000_000), gt=0, description="Larger bodies get 413.")
    replicas: int = Field(
        default=1,
        ge=1,
        description="Gateways that share limits, budgets and retries in the Redis of cache.redis; 1: each by itself.",
    )
    max_waiting: int = Field(
        default=2048,
        ge=1,
        description="Requests that may wait for a model, and as many that nobody waits for; more get 503.",
    )
    startup_wait_s: float = Field(
        default=60.0, ge=0, description="How long a request waits for models still loading before it gets 503."
    )
    drain_s: float = Field(
        default=20.0, ge=0, description="After SIGTERM, how long running requests may take to finish."
    )
    keep_alive_s: float = Field(default=10.0, gt=0, description="A silent stream gets a comment this often.")


class EngineSection(Section):
    """The engine that all models share."""

    device: str = Field(default="auto", description="auto, cpu, cuda or cuda:N; auto takes a GPU where there is one.")
    block_size: int = Field(default=16, ge=1, le=256, description="Tokens per KV-cache block.")
    max_step_tokens: int = Field(default=512, ge=1, description="Token budget of one step.")
    max_running: int = Field(default=64, ge=1, description="Most sequences computed side by side, per model.")
    max_sequence_share: float = Field(
        default=0.5, gt=0, le=1, description="Largest share of a step one sequence may take."
    )
    knee_tokens: int = Field(
        default=0,
        ge=0,
        description="Step size up to which background work joins users' requests; 0: it only runs where nobody waits.",
    )
    background_step_tokens: int = Field(
        default=64, ge=1, description="Largest step of background work only; whoever arrives meanwhile waits for it."
    )
    pinned_share: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="Part of a model's KV cache that teams' pinned prompts may hold; beside it a whole context fits.",
    )
    kv_bytes: ByteSize | None = Field(
        default=None,
        gt=0,
        description="Memory of all KV caches together; null: a quarter of the host's, or most of a GPU's.",
    )
    kv_dtype: Literal["auto", "int8", "fp8"] = Field(
        default="auto",
        description="Keys and values in the models' dtype, or int8: half the memory and reading. fp8: as much, less "
        "exact; for GPUs.",
    )
    usd_per_device_hour: float = Field(
        default=0.0, ge=0, description="What an hour of the device costs: prices what the answer cache saves."
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="CPU threads of a step; null: torch's choice, or fewer by a container's CPU limit.",
    )
    prefix_cache: bool = Field(default=True, description="Reuse the KV blocks of equal prefixes within a team.")
    kernels: Literal["auto", "reference", "triton"] = Field(
        default="auto",
        description="auto: compiled kernels where they were built, on CUDA Triton's where right when tried, and "
        "FlashInfer's where faster; reference: plain torch; triton: our CUDA ones untried (docs/gpu.md).",
    )
    decode_ahead: bool | None = Field(
        default=None,
        description="Begin a step of decoding before the last one was read, by CUDA graphs; null: with triton kernels.",
    )
    keep_quantized: bool = Field(
        default=True, description="Keep quantized weights on disk beside their checkpoint, for the next start."
    )


class ModelSection(Section):
    """One model to serve."""

    id: ModelId = Field(description="The name clients ask for.")
    path: str = Field(
        min_length=1,
        description="A Hugging Face folder, a hub id such as Qwen/Qwen3-0.6B, or demo:student / demo:teacher.",
    )
    adapter: str | None = Field(
        default=None, min_length=1, description="A LoRA adapter of it in PEFT's files: a folder, or a hub id."
    )
    tier: Literal["small", "large"] | None = Field(
        default=None,
        description="Which of the names small and large means this model, or one of several; auto chooses among all.",
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(default="auto", description="Type of weights and arithmetic.")
    weights: Literal["native", "int8", "int4"] = Field(
        default="native", description="int8 and int4 quantize the linear layers when loading."
    )
    context_length: int | None = Field(
        default=None, ge=2, description="Most tokens of prompt and answer; null: the model's."
    )
    lacks: frozenset[Need] = Field(
        default=frozenset(), description="What it does not understand, such as [tools]: such requests go elsewhere."
    )
    tool_calls: Literal["auto"] | ToolFormat = Field(
        default="auto", description="How it writes calls of functions; auto: as its chat template teaches it."
    )
    hand_over: HandOver | Literal[False] | None = Field(
        default=None,
        description="How an answer of a small model begins that leaves the request to the large one, which then "
        "answers where the router may choose; null: as its checkpoint says; false: it leaves none.",
    )
    price: ModelPriceSection = ModelPriceSection()
    sleep: SleepSection = SleepSection()

    @model_validator(mode="after")
    def _small_ones_hand_over(self) -> ModelSection:
        if self.hand_over and self.tier != "small":
            raise ValueError(
                f"hand_over is for models of tier small; the tier of '{self.id}' is {self.tier or 'not set'}"
            )
        return self

    @field_validator("path")
    @classmethod
    def _known_demo(cls, value: str) -> str:
        if value.startswith("demo:") and value not in DEMO_PATHS:
            raise ValueError(f"'{value}' is not bundled; the bundled models are {' and '.join(DEMO_PATHS)}")
        return value


class ExactCacheSection(Section):
    """Answers to requests asked before, word for word."""

    enabled: bool = Field(default=True, description="false switches all caching of answers off.")
    ttl_s: float = Field(default=3600.0, gt=0, description="Seconds until a stored answer is forgotten.")
    time_sensitive_ttl_s: float = Field(
        default=60.0, ge=0, description="The same for questions about now (today, latest, ...); 0 stores none of them."
    )
    max_temperature: float = Field(
        default=0.0, ge=0, le=2, description="Above it an answer is stored only with a seed or where the client asks."
    )
    tool_results: bool = Field(
        default=False, description="Store answers to conversations with results of tools without the client's asking."
    )
    normalize_text: bool = Field(
        default=False, description="Take texts that differ in white space or Unicode form for the same request."
    )
    max_bytes: ByteSize = Field(default=_bytes(64 * MIB), gt=0, description="Memory for stored answers.")


class AuditSection(Section):
    """Audits of hits served by meaning: the model answers the question too, in steps that nobody waits for."""

    enabled: bool = Field(default=True, description="false audits nothing; what was found wrong is not served still.")
    share: float = Field(default=0.05, gt=0, le=1, description="Share of hits that are audited while users wait.")
    idle_share: float = Field(default=1.0, gt=0, le=1, description="Share of hits that are audited while nobody does.")
    queue: int = Field(default=64, ge=1, description="Audits that may wait for an idle engine; more are dropped.")
    alpha: float = Field(
        default=0.05, gt=0, lt=1, description="Probability that the measured wrong share's interval may fail."
    )
    labels: str | None = Field(
        default=None,
        description="File of `headgate bench audit --write`: how far labels of your model are to be trusted.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> AuditSection:
        if self.idle_share < self.share:
            raise ValueError(f"idle_share ({self.idle_share}) must not be below share ({self.share})")
        return self


class SemanticCacheSection(Section):
    """Answers to questions that mean the same."""

    enabled: Literal["auto"] | bool = Field(
        default="auto", description="auto: on where the embedding package is installed."
    )
    max_error: float = Field(
        default=0.02,
        gt=0,
        lt=1,
        description="Share of wrong answers accepted among those served by meaning; a request may ask for fewer.",
    )
    traffic: Literal["natural", "heavy", "adversarial"] = Field(
        default="natural",
        description="How many requests are near misses of others, about 2, 20 or 50 %: more, and fewer are served.",
    )
    near_similarity: float = Field(
        default=0.6, ge=0, le=1, description="Cosine similarity from which a stored answer is looked at."
    )
    max_chars: int = Field(default=1000, ge=1, description="Longer texts are never served another text's answer.")
    wait_s: float = Field(
        default=1.0, ge=0, le=60, description="Longest wait for the answer to a similar question being made; 0: none."
    )
    embedder: str | None = Field(
        default=None, description="Folder of a sentence-transformers model; null: all-MiniLM-L6-v2."
    )

    audit: AuditSection = AuditSection()


class CacheSection(Section):
    """The answer cache."""

    share: Literal["team", "user"] = Field(
        default="team", description="Who shares answers: the keys of a team, or each key and end user has its own."
    )
    insert_share: float = Field(
        default=0.5, ge=0.5, le=1, description="Most of a team's new answers of an hour that one key may make; 1: all."
    )
    inserts_per_hour: int | None = Field(
        default=None, ge=1, description="New answers that one key may have kept in an hour, alone in its team or not."
    )
    epoch: str = Field(default="", max_length=64, description="Any text; a new one makes all older answers unfindable.")
    journal: str | None = Field(
        default=None,
        min_length=1,
        description="Folder that keeps labels, a raised threshold and the epoch for the next start; with Redis that "
        "does, and null keeps them nowhere.",
    )
    exact: ExactCacheSection = ExactCacheSection()
    semantic: SemanticCacheSection = SemanticCacheSection()
    redis: str | None = Field(
        default="auto",
        # It may hold a password.
        repr=False,
        description="auto: the server at REDIS_URL or on this machine, if it answers; null or off: none; or a URL.",
    )
    redis_timeout_s: float = Field(
        default=0.1, gt=0, le=10, description="Seconds Redis has to answer; then a request goes on without."
    )
    secret: str | None = Field(
        default=None,
        pattern=REFERENCE,
        description="env:NAME or file:PATH with at least 16 bytes that key the fingerprints; null: random per start.",
    )

    @field_validator("redis", mode="before")
    @classmethod
    def _redis_server(cls, value: object) -> object:
        # YAML reads a bare `off` as false.
        if value is False or value == "off":
            return None
        if isinstance(value, str) and value != "auto" and (problem := redis_url_problem(value)):
            raise ValueError(f"{problem}; accepted are auto, off, null or redis://[user:password@]host[:port][/db]")
        return value


class ResponsesSection(Section):
    """Responses that clients can go on from, by `previous_response_id`."""

    ttl_s: float = Field(default=3600.0, ge=0, description="Seconds a response is kept; 0 keeps none.")
    max_bytes: ByteSize = Field(
        default=_bytes(64 * MIB), gt=0, description="Memory for those in this process; the oldest leave."
    )


class TeamsSection(Section):
    """Where the team files are."""

    folder: str | None = Field(
        default=TEAMS_FOLDER,
        min_length=1,
        description="Folder of team files (*.yaml). With one file or more every request needs a key; null: none.",
    )


DEMO_MODELS = (
    ModelSection(id="demo-student", path="demo:student", tier="small"),
    ModelSection(id="demo-teacher", path="demo:teacher", tier="large"),
)


class Settings(BaseSettings):
    """All of it. Environment variables (`HEADGATE_SERVER__PORT=9000`) win over the file, the file over defaults."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        env_parse_none_str="null",
        nested_model_default_partial_update=True,
    )

    server: ServerSettings = ServerSettings()
    engine: EngineSection = EngineSection()
    models: tuple[ModelSection, ...] = Field(
        default=DEMO_MODELS, description="What is served; [] where upstreams are all."
    )
    upstreams: tuple[UpstreamSection, ...] = Field(default=(), description="Other servers' models.")
    cache: CacheSection = CacheSection()
    routing: RoutingSection = RoutingSection()
    embeddings: EmbeddingsSection = EmbeddingsSection()
    responses: ResponsesSection = ResponsesSection()
    feedback: FeedbackSection = FeedbackSection()
    storage: StorageSection = StorageSection()
    batches: BatchesSection = BatchesSection()
    teams: TeamsSection = TeamsSection()
    defaults: DefaultsSection = DefaultsSection()
    logging: LoggingSection = LoggingSection()
    telemetry: TelemetrySection = TelemetrySection()
    dashboard: DashboardSection = DashboardSection()

    @field_validator("models")
    @classmethod
    def _distinct_models(cls, models: tuple[ModelSection, ...]) -> tuple[ModelSection, ...]:
        _distinct("id", [m.id for m in models])
        return models

    @field_validator("upstreams")
    @classmethod
    def _distinct_upstreams(cls, upstreams: tuple[UpstreamSection, ...]) -> tuple[UpstreamSection, ...]:
        _distinct("id", [u.id for u in upstreams])
        return upstreams

    @model_validator(mode="after")
    def _distinct_ids(self) -> Settings:
        if not self.served:
            raise ValueError("at least one model or upstream is needed; leave `models` out for the bundled pair")
        _distinct("id", [self.embeddings.id, *(m.id for m in self.models)])
        return self

    @property
    def served(self) -> tuple[ModelSection | UpstreamSection, ...]:
        """Everything that generates answers, the models of this process first."""
        return (*self.models, *self.upstreams)

    @cached_property
    def passes_unknown(self) -> bool:
        """Whether some upstream is sent fields that nobody here knows."""
        return any(upstream.pass_through_unknown for upstream in self.upstreams)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  the signature is pydantic-settings'
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment over file (which comes in as init values) over defaults."""
        return env_settings, init_settings


def _distinct(what: str, values: list[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"the {what} '{value}' is given twice")
        seen.add(value)


def redis_url_problem(url: str) -> str | None:
    """What is wrong with the URL of a Redis server, without repeating it: it may hold a password. None: nothing."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "not a URL with a port between 1 and 65535 (a password's special characters must be percent-encoded)"
    if parts.scheme not in ("redis", "rediss"):
        return "not a redis:// or rediss:// URL"
    if not parts.hostname or port == 0:
        return "a URL without a host or with port 0"
    if not re.fullmatch(r"/?|/\d{1,4}", parts.path) or parts.query or parts.fragment:
        return "a URL with more behind the host than a database number"
    return None
