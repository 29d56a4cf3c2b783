"""What quantizing costs: perplexity and accuracy of the demo models per weight format, KL on random shapes."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headgate.bench.checkpoints import SHAPES, write_shape
from headgate.bench.engine.speed import started
from headgate.engine.demo.tasks import Sample
from headgate.engine.front.local import LocalModel
from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.kv.store import KVDtype, KVStore, kv_dtype
from headgate.engine.models.loader import Dtype, load_decoder
from headgate.engine.quant.linear import WeightFormat
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.engine.text.tokenizer import Tokenizer
from headgate.training.evaluate import Answer, ask


@dataclass(frozen=True, slots=True)
class Format:
    """How weights, and keys and values, are kept."""

    weights: WeightFormat
    kv: KVDtype = "auto"

    def __str__(self) -> str:
        return self.weights if self.kv == "auto" else f"{self.weights}, {self.kv} KV"


FORMATS = (Format("native"), Format("native", "int8"), Format("int8"), Format("int8", "int8"), Format("int4"))
"""The baseline first."""
_TOGETHER = 32
_RESAMPLES = 4000

# Shapes with outputs and inputs that fill no panel or group, small enough for float32 beside the formats.
RANDOM_SHAPES: Mapping[str, Mapping[str, Any]] = {
    "dense, hidden 500": {
        **SHAPES["qwen3-0.6b"],
        "hidden_size": 500,
        "intermediate_size": 1400,
        "num_hidden_layers": 6,
        "num_attention_heads": 10,
        "num_key_value_heads": 5,
        "head_dim": 50,
        "vocab_size": 5000,
    },
    "mixture, hidden 256": {
        **SHAPES["qwen3-moe"],
        "hidden_size": 256,
        "intermediate_size": 512,
        "moe_intermediate_size": 128,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "vocab_size": 5000,
    },
}


@dataclass(frozen=True, slots=True)
class Losses:
    """Of one model in one format: negative log-probability (natural) and tokens of every reference answer."""

    nll: Sequence[float]
    tokens: Sequence[int]

    @property
    def perplexity(self) -> float:
        """exp of the mean over all tokens."""
        return math.exp(sum(self.nll) / sum(self.tokens))


@dataclass(frozen=True, slots=True)
class Change:
    """Perplexity relative to the baseline's, minus 1, with its 95 % interval."""

    value: float
    low: float
    high: float


def change(losses: Losses, baseline: Losses, *, seed: int = 0) -> Change:
    """The interval is a percentile bootstrap over the answers, both models' losses of an answer drawn together.

    Raises:
        ValueError: the two are not of the same answers, or there are none.
    """
    if not losses.tokens or list(losses.tokens) != list(baseline.tokens):
        raise ValueError("both must be losses of the same answers, at least one")
    more = np.asarray(losses.nll) - np.asarray(baseline.nll)
    tokens = np.asarray(losses.tokens, dtype=np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(more), (_RESAMPLES, len(more)))
    relative = np.expm1(more[drawn].sum(axis=1) / tokens[drawn].sum(axis=1))
    low, high = np.quantile(relative, [0.025, 0.975])
    return Change(float(np.expm1(more.sum() / tokens.sum())), float(low), float(high))


@dataclass(frozen=True, slots=True)
class Measured:
    """One demo model in one format. `answers` are empty where accuracy was not asked for."""

    losses: Losses
    answers: Sequence[Answer]
    weight_bytes: int


def measure_demo(
    folder: Path,
    fmt: Format,
    read: Sequence[Sample],
    answered: Sequence[Sample],
    progress: Callable[[str], None],
) -> Measured:
    """Reference answers of `read` scored, `answered` answered greedily."""
    settings = EngineSettings(prefix_cache=False, keep_quantized=False, kv_dtype=fmt.kv)
    with started(settings, ModelSpec("measured", folder, weights=fmt.weights)) as engine:
        model = engine.models["measured"]
        progress(f"{folder.name} {fmt}: perplexity")
        losses = asyncio.run(_losses(model, Tokenizer.load(folder), read))
        progress(f"{folder.name} {fmt}: accuracy")
        answers = asyncio.run(ask(model, answered)) if answered else []
        return Measured(losses, answers, model.info.weight_bytes)


async def _losses(model: LocalModel, tokenizer: Tokenizer, samples: Sequence[Sample]) -> Losses:
    async def loss(place: int, sample: Sample) -> tuple[float, int]:
        answer = (*tokenizer.encode(sample.written, add_special_tokens=False), tokenizer.eos_ids[0])
        async with room:
            prompt = await model.render_chat(*sample.conversation)
            scored = await model.score(f"sample-{place}", prompt, answer)
        return -sum(token.logprob for token in scored.tokens), len(answer)

    room = asyncio.Semaphore(_TOGETHER)
    pairs = await asyncio.gather(*(loss(place, sample) for place, sample in enumerate(samples)))
    return Losses([nll for nll, _ in pairs], [tokens for _, tokens in pairs])


@dataclass(frozen=True, slots=True)
class Divergence:
    """From the float32 model of the same weights, over all positions of a random text.

    Attributes:
        kl: mean of KL(float32 || format), in nats.
        agreement: share of positions whose likeliest token is the same.
        entropy: mean of the float32 distributions', in nats.
    """

    kl: float
    agreement: float
    entropy: float


def divergence(config: Mapping[str, Any], tokens: int = 256) -> dict[Format, Divergence]:
    """Of every format on a random checkpoint of this shape; native is bfloat16."""
    with tempfile.TemporaryDirectory() as scratch, torch.inference_mode():
        folder = write_shape("random", config, Path(scratch), spread=0.06)
        exact = _logprobs(folder, Format("native"), "float32", tokens)
        found: dict[Format, Divergence] = {}
        for fmt in FORMATS:
            given = _logprobs(folder, fmt, "bfloat16", tokens)
            kl = (exact.exp() * (exact - given)).sum(dim=-1).mean()
            agreement = (exact.argmax(dim=-1) == given.argmax(dim=-1)).double().mean()
            entropy = -(exact.exp() * exact).sum(dim=-1).mean()
            found[fmt] = Divergence(float(kl), float(agreement), float(entropy))
    return found


def _logprobs(folder: Path, fmt: Format, dtype: Dtype, tokens: int) -> torch.Tensor:
    """[tokens, vocabulary] float64."""
    cpu = torch.device("cpu")
    decoder = load_decoder(folder, choose_kernels("auto", cpu).kernels, dtype=dtype, fmt=fmt.weights).decoder
    store = KVStore(decoder.spec, 1, tokens, kv_dtype(fmt.kv, decoder.dtype), cpu)
    places = torch.arange(tokens)
    ids = torch.randint(0, decoder.spec.vocab_size, (tokens,), generator=torch.Generator().manual_seed(1))
    logits = decoder.forward(
        ids, places, AttentionBatch([tokens], [tokens], [[0]], places, tokens), store.layers, places
    )
    return logits.double().log_softmax(dim=-1)
