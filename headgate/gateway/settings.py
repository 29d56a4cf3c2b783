"""What an operator can set. No file is needed: every key has a default, and the default is the embedded demo pair."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import ByteSize, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from headgate.gateway.configuration.cache import CacheSection
from headgate.gateway.configuration.models import DEMO_MODELS, ModelSection
from headgate.gateway.configuration.routing import RoutingSection
from headgate.gateway.configuration.section import Section
from headgate.gateway.storage.sections import BatchesSection, StorageSection
from headgate.gateway.teams.sections import DefaultsSection
from headgate.gateway.telemetry.sections import LoggingSection, TelemetrySection
from headgate.gateway.upstream.sections import UpstreamSection

ENV_PREFIX = "HEADGATE_"
BUNDLED_ID = "all-minilm-l6-v2"
TEAMS_FOLDER = "config/teams"


class ServerSettings(Section):
    """The HTTP edge."""

    host: str = Field(
        default="127.0.0.1", min_length=1, description="Address to listen on; 0.0.0.0 listens everywhere."
    )
    port: int = Field(default=8000, ge=0, le=65535, description="TCP port; 0 takes a free one.")
    max_body_bytes: ByteSize = Field(default=ByteSize(10_000_000), gt=0, description="Larger bodies get 413.")
    max_body_values: int = Field(
        default=100_000,
        ge=1,
        description="Objects, arrays and strings in a JSON body, ten numbers counting as one; more get 413.",
    )
    max_pictures: int = Field(
        default=16, ge=1, description="Pictures that a model of this process looks at in one request; more get 400."
    )
    max_pixels: int = Field(
        default=40_000_000,
        ge=1,
        le=170_000_000,
        description="Pixels of all pictures of such a request, as their files have them; more get 400 undecoded.",
    )
    max_picture_bytes: ByteSize = Field(
        default=ByteSize(1 << 30),
        gt=0,
        description="Memory of all pictures as models take them, until their answers are whole; further ones get 503.",
    )
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
    send_s: float = Field(
        default=60.0, gt=0, description="A client that takes nothing of its reply for so many seconds is left."
    )


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
    prompt_lookup: bool = Field(
        default=True,
        description="Draft what followed in prompt and answer the last time that the latest tokens came, on CPUs; it "
        "changes no answer.",
    )
    record_prompts: bool = Field(
        default=False,
        description="Where steps of decoding are CUDA graphs, also those with prompts, up to 512 tokens; untried yet.",
    )
    keep_quantized: bool = Field(
        default=True, description="Keep quantized weights on disk beside their checkpoint, for the next start."
    )
    kv_host_bytes: ByteSize = Field(
        default=ByteSize(0),
        ge=0,
        description="Host memory for KV blocks that a GPU's cache overwrites; 0: none. Needs prefix_cache.",
    )
    kv_disk_path: str | None = Field(
        default=None,
        min_length=1,
        description="Folder of this server alone for such KV blocks, which the next start finds; null: none. Who can "
        "read it can tell what prompts said.",
    )
    kv_disk_bytes: ByteSize = Field(
        default=ByteSize(10_000_000_000), gt=0, description="Most that is in kv_disk_path; what was not used goes."
    )


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


class ResponsesSection(Section):
    """Responses that clients can go on from, by `previous_response_id`."""

    ttl_s: float = Field(default=3600.0, ge=0, description="Seconds a response is kept; 0 keeps none.")
    max_bytes: ByteSize = Field(
        default=ByteSize(64 << 20), gt=0, description="Memory for those in this process; the oldest leave."
    )


class FeedbackSection(Section):
    """What apps say of answers at `/v1/feedback`."""

    most: int = Field(
        default=10_000, ge=0, description="Latest answers of each team that may be rated, and ratings kept; 0: none."
    )
    voices: int = Field(
        default=3,
        ge=0,
        le=10,
        description="End users that must call a stored answer bad for it to be kept from similar questions; 0: never.",
    )


class DashboardSection(Section):
    """The operator's page."""

    enabled: bool = Field(default=True, description="Serve /dashboard, whose figures a key with the role admin sees.")
    requests: int = Field(
        default=2000, ge=1, le=100_000, description="Requests that ended last and can be explained; never content."
    )


class TeamsSection(Section):
    """Where the team files are."""

    folder: str | None = Field(
        default=TEAMS_FOLDER,
        min_length=1,
        description="Folder of team files (*.yaml). With one file or more every request needs a key; null: none.",
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
        _distinct("id", [each.id for m in models for each in m.models])
        return models

    @field_validator("upstreams")
    @classmethod
    def _distinct_upstreams(cls, upstreams: tuple[UpstreamSection, ...]) -> tuple[UpstreamSection, ...]:
        _distinct("id", [u.id for u in upstreams])
        return upstreams

    @model_validator(mode="after")
    def _distinct_ids(self) -> Settings:
        if not self.named:
            raise ValueError("at least one model or upstream is needed; leave `models` out for the bundled pair")
        _distinct("id", [self.embeddings.id, *(m.id for m in self.local)])
        return self

    @model_validator(mode="after")
    def _known_drafters(self) -> Settings:
        for model in self.models:
            others = [other.id for other in self.models if other is not model]
            if model.drafter is not None and model.drafter not in others:
                raise ValueError(
                    f"the drafter of the model '{model.id}' is '{model.drafter}'; others of `models` are "
                    f"{', '.join(others) or 'none'}"
                )
        return self

    @property
    def local(self) -> tuple[ModelSection, ...]:
        """The models of this process, adapters among them, each behind the model that it is of."""
        return tuple(each for model in self.models for each in model.models)

    @property
    def served(self) -> tuple[ModelSection | UpstreamSection, ...]:
        """Everything that generates answers, the models of this process first."""
        return (*self.local, *(upstream for upstream in self.upstreams if "chat" in upstream.serves))

    @property
    def named(self) -> tuple[ModelSection | UpstreamSection, ...]:
        """The same, and what serves other things than chats."""
        return (*self.local, *self.upstreams)

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
