"""Checkpoints that only transformers has a decoder for: loaded by it, and tried before they are served."""

from __future__ import annotations

import importlib.util
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headgate.engine.errors import CheckpointError, UnknownArchitecture, lacks_memory
from headgate.engine.kernels.interface import Kernels
from headgate.engine.models.architectures import known
from headgate.engine.models.config import MOST_LAYERS, Config
from headgate.engine.models.guests import trial as guest_trial
from headgate.engine.models.guests.guest import Guest, GuestSpec
from headgate.engine.models.guests.parts import ATTENTION, Attended, GuestParts, attention
from headgate.engine.models.guests.states import StateSurvey, remembers
from headgate.engine.models.identity import revision
from headgate.engine.models.loader import Dtype, LoadedDecoder, computed_in, return_freed_memory
from headgate.engine.models.weights.quantization import STATED_IN, check_quantization
from headgate.engine.models.weights.quantized import expanded
from headgate.engine.models.weights.tensors import CheckpointTensors, read_json
from headgate.engine.quant.linear import WeightFormat

logger = logging.getLogger(__name__)

OTHER_PARTS = ("model.visual.", "visual.", "mtp.")
"""What the names of tensors begin with that are of parts that see or that guess tokens ahead."""
_HARMLESS = frozenset({"position_ids", "use_cache", "output_router_logits", "output_attentions", "output_hidden_states",
                       "cache_position", "logits_to_keep", "labels", "return_dict", "position_embeddings"})  # fmt: skip
"""What layers hand on to attention, which needs none of it here."""
_LAYERS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer")
"""Keys of the number of layers; transformers would make a list of however many."""


@dataclass(frozen=True, slots=True)
class GuestFacts:
    """What config.json tells of a model for transformers.

    Attributes:
        window: positions back that layers see, itself included, if there is such a bound.
        experts: of a layer that has some, and how many of them a token passes; 0 without.
    """

    architecture: str
    context_length: int
    vocab_size: int
    window: int | None
    experts: tuple[int, int]


def guest_facts(folder: Path) -> GuestFacts:
    """Of the config.json in `folder`.

    Raises:
        UnknownArchitecture: transformers is not there, does not know it, or has no place in it for another attention.
        CheckpointError: what a server has to know is missing.
    """
    name, config, _ = _known(folder)
    text = config.get_text_config()
    told = Config({key: getattr(text, key, None) for key in ("max_position_embeddings", "vocab_size")})
    context, vocabulary = told.integer("max_position_embeddings"), told.integer("vocab_size")
    kinds = getattr(text, "layer_types", None) or ["sliding_attention"]
    if "chunked_attention" in kinds:
        # Within its first chunk a sequence attends as any other.
        context = min(context, text.attention_chunk_size)
    context = min([context, *_first_contexts(text)])
    windowed = getattr(text, "use_sliding_window", True) and "sliding_attention" in kinds
    window = getattr(text, "sliding_window", None) if windowed else None
    return GuestFacts(name, context, vocabulary, window, _experts(text))


def load_guest(
    folder: Path, kernels: Kernels, *, dtype: Dtype, fmt: WeightFormat, device: torch.device
) -> LoadedDecoder:
    """Load the checkpoint in `folder` by transformers' own code, and see that it computes here what it does there.

    Arguments as of `load_decoder`. Linear layers are in `fmt`, save those that choose experts; experts that are one
    tensor stay as they are.

    Raises:
        UnknownArchitecture: see `guest_facts`; or with our attention and cache the logits are others.
        CheckpointError: a file is missing or damaged, or weights are.
    """
    facts, source, config = guest_facts(folder), CheckpointTensors(folder), read_json(folder / "config.json")
    compute = computed_in(config, dtype)
    model = _read(folder, compute).to(device).eval()
    with torch.inference_mode(), _refusing(facts.architecture):
        if getattr(model, "_is_stateful", False) and not remembers(model):
            raise ValueError("its layers keep a state in a way that is not known here")
        prompt = guest_trial.prompt(facts.vocab_size, device)
        wanted = guest_trial.own_logits(model, prompt, remembers=remembers(model))
        parameters, parts = model.num_parameters(), GuestParts(model)
        del model
        survey = _Survey()
        parts.hidden(prompt[:2], torch.arange(2, device=device), survey, survey.states)
        guest = Guest(
            parts, survey.spec(facts, wanted.shape[-1]), kernels, capped=survey.capped, singly=survey.states.singly
        )
        off = guest_trial.off(guest, prompt, wanted)
        if not off <= guest_trial.OFF.get(compute, guest_trial.OFF_ROUNDED):
            raise ValueError(f"with our attention and cache its logits are off by {off:.2g}")
        parts.compute_in(kernels, fmt, routers=facts.experts[0])
        if not math.isfinite(guest_trial.off(guest, prompt, wanted)):
            raise ValueError(f"with weights of {fmt} its logits are not finite")
    return_freed_memory()
    logger.info("%s: transformers' own layers with our attention and cache; its logits are off by %.2g", folder, off)
    experts, passed = facts.experts
    idle = guest.expert_bytes // compute.itemsize * (experts - passed)
    return LoadedDecoder(guest, parameters, parameters - idle, revision(config, source))


def _known(folder: Path) -> tuple[str, Any, type[Any]]:
    """The architecture's name, transformers' configuration and its class of a causal language model."""
    stated = read_json(folder / "config.json")
    names = stated.get("architectures")
    name = str(names[0] if isinstance(names, list) and names else stated.get("model_type", "none given"))
    if importlib.util.find_spec("transformers") is None:
        raise UnknownArchitecture(
            f"config.json: architecture {name!r} is not known; known are {', '.join(known())}, and with the package "
            "transformers (pip install 'headgate[transformers]') others"
        )
    # It takes seconds, and hardly anybody needs it.
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    kind = stated.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        raise UnknownArchitecture(
            f"config.json: architecture {name!r} is not known, nor is model_type {kind!r} to transformers; known are "
            f"{', '.join(known())}"
        )
    check_quantization(stated)
    for part in (Config(stated), Config(stated).object("text_config")):
        for key in _LAYERS:
            part.integer(key, default=1, most=MOST_LAYERS)
    try:
        config = CONFIG_MAPPING[kind].from_pretrained(folder, local_files_only=True)
    except Exception as error:
        raise CheckpointError(f"{folder}/config.json: transformers does not take it: {error}") from error
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise _unfit(name, "it is no causal language model")
    model, whole = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], type(config)
    text = config.sub_configs.get("text_config")
    if text is not None and getattr(model, "config_class", None) is text:
        # Its text model is one by itself, and what is said of the head is often said of the whole only.
        config = config.get_text_config()
        if stated.get("tie_word_embeddings") is not None:
            config.tie_word_embeddings = bool(stated["tie_word_embeddings"])
    if name != model.__name__ and not name.endswith("ForCausalLM") and type(config) is whole:
        raise _unfit(name, f"of model_type {config.model_type!r} only {model.__name__} can be")
    # What keeps a state says that it has none, too, for other backends of transformers have no states.
    if not any(getattr(model, key, False) for key in ("_supports_attention_backend", "_is_stateful")):
        raise _unfit(name, "it has no place for another attention")
    return name, config, model


def _first_contexts(config: Any) -> list[int]:
    """Up to where angles are those of short sequences. Beyond it transformers takes others for all of a step."""
    stated = getattr(config, "rope_parameters", None) or {}
    kinds = [stated, *(each for each in stated.values() if isinstance(each, dict))]
    whole = getattr(config, "original_max_position_embeddings", None)
    long = [each for each in kinds if each.get("rope_type") == "longrope"]
    found = [each.get("original_max_position_embeddings", whole) for each in long]
    return [length for length in found if isinstance(length, int)]


def _experts(config: Any) -> tuple[int, int]:
    counts = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    passed = ("num_experts_per_tok", "moe_topk", "moe_k", "num_experts_per_token", "top_k_experts")
    count, per_token = (
        next((value for key in keys if isinstance(value := getattr(config, key, None), int)), 0)
        for keys in (counts, passed)
    )
    return (count, per_token) if count and per_token else (0, 0)


def _read(folder: Path, dtype: torch.dtype) -> Any:
    _, config, kind = _known(folder)
    from transformers import AttentionInterface
    from transformers.utils import logging as telling

    AttentionInterface.register(ATTENTION, attention)
    options = {"dtype": dtype, "attn_implementation": ATTENTION, "output_loading_info": True, "local_files_only": True}
    shown = telling.is_progress_bar_enabled()
    telling.disable_progress_bar()
    try:
        if any(read_json(folder / "config.json").get(key) for key in STATED_IN):
            # For most formats it wants packages of their makers.
            plain = type(config).from_dict({k: v for k, v in config.to_dict().items() if k not in STATED_IN})
            model, found = kind.from_pretrained(None, config=plain, state_dict=expanded(folder, dtype), **options)
        else:
            model, found = kind.from_pretrained(folder, config=config, **options)
    except CheckpointError:
        raise
    except Exception as error:
        if lacks_memory(error):
            raise
        raise CheckpointError(f"{folder}: transformers cannot load it: {type(error).__name__}: {error}") from error
    finally:
        if shown:
            telling.enable_progress_bar()
    for what in ("missing_keys", "mismatched_keys"):
        if found[what]:
            raise CheckpointError(f"{folder}: {what.replace('_keys', '')} tensors: {_some(found[what])}")
    if found["unexpected_keys"]:
        logger.warning("%s: tensors that transformers has no use for: %s", folder, _some(found["unexpected_keys"]))
    return model


def _some(names: Any) -> str:
    few = sorted(map(str, names))
    return ", ".join(few[:3]) + (f" and {len(few) - 3} more" if len(few) > 3 else "")


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Whatever somebody else's code raises where it was not made for this says that it is not."""
    try:
        yield
    except UnknownArchitecture:
        raise
    except Exception as error:
        if lacks_memory(error):
            raise
        raise _unfit(name, f"{type(error).__name__}: {error}") from error


def _unfit(name: str, why: str) -> UnknownArchitecture:
    return UnknownArchitecture(f"config.json: architecture {name!r} is transformers' and cannot be served: {why}")


@dataclass
class _Survey:
    """What a model's layers want attended, in order."""

    seen: list[Attended] = field(default_factory=list)
    states: StateSurvey = field(default_factory=StateSurvey)

    def __call__(self, wanted: Attended) -> Tensor:
        """See Attends."""
        self.seen.append(wanted)
        strange = sorted(wanted.beside.keys() - _HARMLESS)
        if strange:
            raise ValueError(f"its attention takes {', '.join(strange)}")
        query = wanted.query[0].transpose(0, 1)
        return query.new_zeros(*query.shape[:2], wanted.value.shape[-1])

    @property
    def capped(self) -> bool:
        """Whether a layer caps scores."""
        return any(wanted.cap is not None for wanted in self.seen)

    def spec(self, facts: GuestFacts, vocab_size: int) -> GuestSpec:
        """Of what was seen.

        Raises:
            ValueError: the cache or the kernels have nothing for it.
        """
        if facts.window and facts.window < facts.context_length and not any(wanted.window for wanted in self.seen):
            raise ValueError(f"sliding_window is {facts.window}, of which its attention is not told")
        if not self.seen:
            raise ValueError("none of its layers attends")
        shapes = ((w.key.shape[1], max(w.key.shape[-1], w.value.shape[-1])) for w in self.seen)
        return GuestSpec(
            architecture=facts.architecture,
            kv_shapes=tuple(shapes),
            kv_windows=tuple(wanted.window for wanted in self.seen),
            state_shapes=tuple(self.states.shapes),
            vocab_size=vocab_size,
            context_length=facts.context_length,
            expert_count=facts.experts[0],
            experts_per_token=facts.experts[1],
        )
