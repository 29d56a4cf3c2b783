"""Tells what is known of a model that was loaded, and of one with an adapter."""

from __future__ import annotations

from dataclasses import replace

import torch

from headgate.engine.assembling.reading import ReadModel
from headgate.engine.front.model_info import ModelInfo
from headgate.engine.kv.store import kv_bytes_per_token, kv_dtype, state_bytes
from headgate.engine.models.adapters.decoder import AdapterFacts
from headgate.engine.models.generation import hand_over, sampling_defaults
from headgate.engine.settings import EngineSettings
from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.folder import text_revision
from headgate.engine.text.reasoning import thinks
from headgate.engine.text.tool_calls import tool_format


def model_info(
    model: ReadModel, template: ChatTemplate, settings: EngineSettings, *, context_length: int, device: torch.device
) -> ModelInfo:
    """Of a model that takes so many tokens, on a device."""
    spec, loaded, decoder = model.spec, model.loaded, model.decoder
    thinking = thinks(template, model.tokenizer)
    return ModelInfo(
        name=spec.name,
        path=str(spec.path),
        architecture=decoder.spec.architecture,
        context_length=context_length,
        vocab_size=decoder.spec.vocab_size,
        parameters=loaded.parameters,
        active_parameters=loaded.active_parameters,
        weight_bytes=decoder.weight_bytes,
        expert_bytes=decoder.expert_bytes,
        experts=decoder.spec.expert_count,
        experts_per_token=decoder.spec.experts_per_token,
        kv_bytes_per_token=kv_bytes_per_token(decoder.spec, kv_dtype(settings.kv_dtype, decoder.dtype)),
        dtype=str(decoder.dtype).removeprefix("torch."),
        weights=spec.weights,
        device=str(device),
        revision=loaded.revision,
        defaults=sampling_defaults(spec.path, decoder.spec.vocab_size),
        text_revision=text_revision(spec.path),
        tool_calls=tool_format(template, spec.tool_calls, harmony=thinking == "harmony"),
        thinks=thinking,
        hand_over=hand_over(spec.path),
        state_bytes=state_bytes(decoder.spec),
        sees=decoder.eyes is not None,
        max_running=settings.max_running,
        max_step_tokens=settings.max_step_tokens,
    )


def adapted_info(base: ModelInfo, name: str, facts: AdapterFacts) -> ModelInfo:
    """Of a model with an adapter, by the name that it has then."""
    return replace(
        base,
        name=name,
        adapter_of=base.name,
        parameters=base.parameters + facts.parameters,
        active_parameters=base.active_parameters + facts.parameters,
        weight_bytes=base.weight_bytes + facts.nbytes,
        revision=facts.revision,
    )
