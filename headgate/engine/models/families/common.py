"""What families of architectures say alike in config.json."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.engine.errors import CheckpointError
from headgate.engine.models.activation import Activation
from headgate.engine.models.config import LARGEST, MOST_LAYERS, Config
from headgate.engine.models.families.rotary import rope_of
from headgate.engine.models.rope import RopeSpec
from headgate.engine.models.spec import DecoderSpec, WeightNames

_ACTIVATIONS: Mapping[Activation, tuple[str, ...]] = {
    "silu": ("silu", "swish"),
    "gelu": ("gelu_pytorch_tanh",),
    "relu2": ("relu2",),
}

NORMS_BEHIND = WeightNames(
    input_norm=None,
    attended_norm="post_attention_layernorm",
    mlp_norm=None,
    fed_norm="post_feedforward_layernorm",
)
"""Of families that normalise what layers add, and not what they read."""


def base(
    config: Config, architecture: str, *, activation: Activation = "silu", rope: RopeSpec | None = None
) -> DecoderSpec:
    """A decoder as Llama is one. `rope`: of families that say it in their own way.

    Raises:
        CheckpointError: a key is missing or has a value that cannot be served.
    """
    key = "hidden_activation" if config.get("hidden_activation") else "hidden_act"
    accepted = _ACTIVATIONS[activation]
    if (found := config.get(key, accepted[0])) not in accepted:
        raise CheckpointError(f"config.json: {key} {found!r} is not supported; it must be {accepted[0]!r}")
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    kv_heads = config.integer("num_key_value_heads", default=heads)
    head_dim = head_dim_of(config)
    layers = config.integer("num_hidden_layers", most=MOST_LAYERS)
    if heads % kv_heads:
        raise CheckpointError(
            f"config.json: num_attention_heads ({heads}) must be a multiple of num_key_value_heads ({kv_heads})"
        )
    rope = rope or rope_of(config, head_dim)
    context = config.integer("max_position_embeddings")
    if rope.kind == "yarn":
        # Some checkpoints state the context before the extension, some after it.
        context = max(context, int(min(rope.factor * rope.original_context, LARGEST)))
    return DecoderSpec(
        architecture=architecture,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        mlp_width=config.integer("intermediate_size"),
        vocab_size=config.integer("vocab_size"),
        norm_eps=config.number("rms_norm_eps", 1e-6),
        rope=rope,
        context_length=context,
        activation=activation,
        tied_head=bool(config.get("tie_word_embeddings", False)),
        windows=(None,) * layers,
    )


def head_dim_of(config: Config) -> int:
    """Features of a head.

    Raises:
        CheckpointError: it is odd: they turn in pairs.
    """
    dim = config.integer("head_dim", default=config.integer("hidden_size") // config.integer("num_attention_heads"))
    if dim % 2:
        raise CheckpointError(f"config.json: head_dim must be even, got {dim}")
    return dim


def windows(config: Config, layers: int, first_windowed: int) -> tuple[int | None, ...]:
    """Per-layer windows from layer_types where given, else every layer from `first_windowed` on."""
    window = config.integer("sliding_window", default=0, least=0)
    if not window:
        return (None,) * layers
    sliding = sliding_layers(config, layers)
    if sliding is None:
        return tuple(window if layer >= first_windowed else None for layer in range(layers))
    return tuple(window if layer in sliding else None for layer in range(layers))


def sliding_layers(config: Config, layers: int) -> frozenset[int] | None:
    """The layers that layer_types gives sliding attention; None where there is no such key.

    Raises:
        CheckpointError: it has something else.
    """
    types = config.get("layer_types")
    if not types:
        return None
    known = isinstance(types, list) and all(kind in ("sliding_attention", "full_attention") for kind in types)
    if not known or len(types) != layers:
        wanted = f"a list of 'sliding_attention' and 'full_attention' for each of {layers} layers"
        raise CheckpointError(f"config.json: layer_types must be {wanted}, got {types!r}")
    return frozenset(layer for layer, kind in enumerate(types) if kind == "sliding_attention")
