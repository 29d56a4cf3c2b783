"""Which tensor of a GGUF file is which of a checkpoint: llama.cpp has one name for each part, families have many."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from headgate.engine.models.spec import DecoderSpec, Places

_SHARED = ("gate_proj", "up_proj", "down_proj")
_EXPERTS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")


@dataclass(frozen=True, slots=True)
class Named:
    """A tensor of a checkpoint, and where a GGUF file has it.

    Attributes:
        name: the checkpoint's.
        gguf: the file's.
        expert: which of the file's first dimension it is; None where it is all of it.
        turned: its outputs are those of heads that turn.
    """

    name: str
    gguf: str
    expert: int | None = None
    turned: bool = False


def gguf_names(spec: DecoderSpec, there: Container[str]) -> Iterator[Named]:
    """All tensors that a model of `spec` may have, those left out whose names differ in every family.

    `there`: the names of the file's tensors.
    """
    places = Places()
    yield Named(f"{places.model}.embed_tokens.weight", "token_embd.weight")
    yield Named(f"{places.model}.norm.weight", "output_norm.weight")
    yield Named(f"{places.head}.weight", "output.weight")
    for number in range(spec.layers):
        yield from _layer(spec, f"{places.model}.layers.{number}", f"blk.{number}", there)


def _layer(spec: DecoderSpec, at: str, block: str, there: Container[str]) -> Iterator[Named]:
    names = spec.names
    fused = ("attn_qkv",) if len(names.qkv) == 1 else ("attn_q", "attn_k", "attn_v")
    ups = ("ffn_up",) if len(names.gate_up) == 1 else ("ffn_gate", "ffn_up")
    layers = [
        *zip(names.qkv, fused, strict=True),
        ("self_attn.o_proj", "attn_output"),
        *zip(names.gate_up, ups, strict=True),
        ("mlp.down_proj", "ffn_down"),
        (names.router, "ffn_gate_inp"),
    ]
    for name, gguf in layers:
        for part in ("weight", "bias"):
            yield Named(f"{at}.{name}.{part}", f"{block}.{gguf}.{part}", turned=gguf in ("attn_q", "attn_k"))
    # gpt-oss and Seed-OSS have the norm before the MLP by the name that others have for one behind the attention.
    mlp_norm = "ffn_norm" if f"{block}.ffn_norm.weight" in there else "post_attention_norm"
    norms = (
        (names.input_norm, "attn_norm"),
        (names.attended_norm, "post_attention_norm"),
        (names.mlp_norm, mlp_norm),
        (names.fed_norm, "post_ffw_norm"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
    )
    for norm, gguf in norms:
        if norm is not None:
            yield Named(f"{at}.{norm}.weight", f"{block}.{gguf}.weight")
    yield Named(f"{at}.self_attn.sinks", f"{block}.attn_sinks.weight")
    if spec.experts is None or names.interleaved_experts:
        return
    for name, gguf in zip((names.expert_gate, names.expert_up, names.expert_down), _EXPERTS, strict=True):
        if f"{block}.{gguf}.weight" in there:
            for expert in range(spec.experts.count):
                yield Named(f"{at}.{names.experts}.{expert}.{name}.weight", f"{block}.{gguf}.weight", expert)
    for name, gguf in zip(_SHARED, ("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"), strict=True):
        yield Named(f"{at}.mlp.shared_expert.{name}.weight", f"{block}.{gguf}.weight")
    yield Named(f"{at}.mlp.shared_expert_gate.weight", f"{block}.ffn_gate_inp_shexp.weight")
