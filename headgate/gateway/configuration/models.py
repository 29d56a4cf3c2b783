"""The list `models:` of the settings: what this process serves, with adapters, drafters and sleep."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from headgate.engine.text.tool_calls import ToolFormat
from headgate.gateway.configuration.routing import ModelPriceSection
from headgate.gateway.configuration.section import HandOver, ModelId, Section
from headgate.routing.types import Skill

DEMO_PATHS = ("demo:student", "demo:teacher")


class SleepSection(Section):
    """When a model gives its memory back, and who gets it back."""

    idle_s: float = Field(default=0.0, ge=0, description="Seconds without work after which it sleeps; 0: never.")
    on_request: Literal["wake", "refuse"] = Field(
        default="wake",
        description="wake: a request wakes it; refuse: only an administrator does, requests get 503 or other models.",
    )
    wake_wait_s: float = Field(
        default=60.0, gt=0, description="Longest that a request waits for it to wake, before it gets 503."
    )


class AdapterSection(Section):
    """A LoRA adapter of a model, as one more model that shares the other's weights, memory and steps."""

    id: ModelId = Field(description="The name clients ask for.")
    path: str = Field(min_length=1, description="A folder of PEFT's files, or a hub id.")
    tier: Literal["small", "large"] | None = Field(default=None, description="As that of a model.")
    lacks: frozenset[Skill] | None = Field(
        default=None, description="What it does not understand; null: what the model does not."
    )
    price: ModelPriceSection | None = Field(default=None, description="Null: the model's.")


class ModelSection(Section):
    """One model to serve."""

    id: ModelId = Field(description="The name clients ask for.")
    path: str = Field(
        min_length=1,
        description="A Hugging Face folder, a GGUF file, a hub id such as Qwen/Qwen3-0.6B, or demo:student / "
        "demo:teacher.",
    )
    adapter: str | None = Field(
        default=None,
        min_length=1,
        description="A LoRA adapter in PEFT's files that becomes part of its weights: a folder, or a hub id.",
    )
    adapters: tuple[AdapterSection, ...] = Field(
        default=(), description="LoRA adapters of it, each a model more that is computed in the same steps."
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
    lacks: frozenset[Skill] = Field(
        default=frozenset(), description="What it does not understand, such as [tools]: such requests go elsewhere."
    )
    tool_calls: Literal["auto"] | ToolFormat = Field(
        default="auto", description="How it writes calls of functions; auto: as its chat template teaches it."
    )
    drafter: str | None = Field(
        default=None,
        description="Another of these models, a smaller one with the same vocabulary, that drafts for this one; it "
        "changes no answer.",
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

    @model_validator(mode="after")
    def _one_kind_of_adapters(self) -> ModelSection:
        if self.adapter is not None and self.adapters:
            raise ValueError(
                f"the model '{self.id}' has 'adapter' and 'adapters'; those of 'adapters' are of its own weights, "
                "without the other"
            )
        return self

    @property
    def models(self) -> tuple[ModelSection, ...]:
        """It, and each of its adapters as the model that it is to clients."""
        return (self, *map(self._adapted, self.adapters))

    def _adapted(self, adapter: AdapterSection) -> ModelSection:
        return self.model_copy(
            update={
                "id": adapter.id,
                "adapter": adapter.path,
                "adapters": (),
                "tier": adapter.tier,
                "lacks": self.lacks if adapter.lacks is None else adapter.lacks,
                "hand_over": self.hand_over if adapter.tier == "small" else None,
                "price": adapter.price or self.price,
                # With the model, and by its time.
                "sleep": self.sleep.model_copy(update={"idle_s": 0.0}),
            }
        )

    @field_validator("path")
    @classmethod
    def _known_demo(cls, value: str) -> str:
        if value.startswith("demo:") and value not in DEMO_PATHS:
            raise ValueError(f"'{value}' is not bundled; the bundled models are {' and '.join(DEMO_PATHS)}")
        return value


DEMO_MODELS = (
    ModelSection(id="demo-student", path="demo:student", tier="small"),
    ModelSection(id="demo-teacher", path="demo:teacher", tier="large"),
)
