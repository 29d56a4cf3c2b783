"""What an engine is told: how it uses its device, and which models it loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headgate.engine.kernels.choice import KernelSet
from headgate.engine.kv.store import KVDtype
from headgate.engine.models.loader import Dtype
from headgate.engine.quant.linear import WeightFormat
from headgate.engine.scheduling.limits import Limits
from headgate.engine.text.tool_calls import ToolFormat


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model to load.

    `context_length` lowers the checkpoint's own limit; `weights` is the linear layers' format; `tool_calls` is how it
    writes calls of functions, "auto" as its chat template teaches it; `adapter` is the folder of a LoRA adapter of the
    checkpoint, which becomes part of the weights. `adapters` are folders of others by name, each one a model more that
    shares all of this one: see AdaptedDecoder. `drafter` names another model that drafts for this one: see Drafter.
    """

    name: str
    path: Path
    dtype: Dtype = "auto"
    weights: WeightFormat = "native"
    context_length: int | None = None
    tool_calls: ToolFormat | Literal["auto"] = "auto"
    adapter: Path | None = None
    adapters: Mapping[str, Path] = field(default_factory=dict)
    drafter: str | None = None


@dataclass(frozen=True, slots=True)
class EngineSettings(Limits):
    """How the engine uses its device, within the limits of each step of each model.

    Attributes:
        device: "auto" (cuda if there is one), "cpu", "cuda" or "cuda:N".
        block_size: tokens per block of the KV cache.
        kv_bytes: KV cache of all models together; None takes a quarter of the host's memory or 80 % of what the GPU
            has left after the weights, less where the largest step, which is tried, needs more. On the CPU memory is
            used as blocks are, not at once.
        kv_dtype: "auto" (the dtype a model computes in), "int8" (half of that memory and reading, see KVLayer) or "fp8"
            (as much, of plain torch or on GPUs that compute with it).
        threads: for operators on the CPU; None leaves torch's own choice.
        prefix_cache: reuse the blocks of equal prefixes within a tenant.
        kernels: "auto" (compiled ones where they were built, Triton's on CUDA, if they are right there: see `trial`),
            "reference" (plain torch) or "triton" (on CUDA, whatever the GPU).
        decode_ahead: begin a step of decoding before the last one was read, by CUDA graphs on CUDA. None: where the
            kernels are those of Triton. True is refused where kernels have no such steps.
        prompt_lookup: have steps check what followed in prompt and answer the last time that an answer's latest tokens
            came, where steps are not begun ahead.
        record_prompts: where steps of decoding are CUDA graphs, also those with prompts of up to some hundred tokens.
        keep_quantized: write quantised weights to disk beside their checkpoint, and map them at the next start.
        kv_host_bytes: host memory for blocks that the KV cache overwrites, of all models together; 0: none.
        kv_disk_path: a folder for them, which the next start finds them in; None: none. It tells what prompts said.
        kv_disk_bytes: most that is in it.
    """

    device: str = "auto"
    block_size: int = 16
    kv_bytes: int | None = None
    kv_dtype: KVDtype = "auto"
    threads: int | None = None
    prefix_cache: bool = True
    kernels: KernelSet = "auto"
    decode_ahead: bool | None = None
    prompt_lookup: bool = True
    record_prompts: bool = False
    keep_quantized: bool = True
    kv_host_bytes: int = 0
    kv_disk_path: Path | None = None
    kv_disk_bytes: int = 10_000_000_000
