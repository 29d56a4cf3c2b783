"""Where 4 bits cost: how far a demo model's next tokens move when one part of its layers has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from headgate.engine.demo.tasks import Sample
from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.interface import AttentionBatch, Kernels
from headgate.engine.kv.store import KVStore
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.models.loader import load_decoder
from headgate.engine.models.opening import folder_tensors, open_checkpoint
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.models.weights.formats import LayerFormats, layer_formats
from headgate.engine.quant.linear import WeightFormat
from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.tokenizer import Tokenizer

_TOGETHER = 32
_NATIVE: WeightFormat = "native"


_Text = tuple[Sequence[int], Sequence[int]]
"""A prompt and a reference answer to it, as tokens."""


def _parts_of(spec: DecoderSpec, *, int8: bool) -> dict[str, LayerFormats]:
    """What is measured, by name: parts of a model in 4 bits with all else native, the whole, and what is served."""
    all_layers: list[WeightFormat] = ["int4"] * spec.layers
    native: list[WeightFormat] = [_NATIVE] * spec.layers
    return {
        "attention of the first layer": LayerFormats(["int4", *native[1:]], _NATIVE),
        "attention of the last layer": LayerFormats([*native[1:], "int4"], _NATIVE),
        "attention of all layers": LayerFormats(all_layers, _NATIVE),
        "all but attention": LayerFormats(native, "int4"),
        "all": LayerFormats(all_layers, "int4"),
        "`weights: int4`": layer_formats(spec, "int4", int8=int8),
    }


def part_divergences(folder: Path, samples: Sequence[Sample]) -> Mapping[str, float]:
    """By part, the mean over all tokens of the reference answers of KL(native || part), in nats; float32 throughout."""
    kernels, texts = choose_kernels("auto", torch.device("cpu")).kernels, _texts(folder, samples)
    tokens = sum(len(answer) for _, answer in texts)
    found: dict[str, float] = {}
    with torch.inference_mode():
        exact = list(_logprobs(folder, kernels, _NATIVE, texts))
        for name, formats in _parts_of(open_checkpoint(folder, folder_tensors).spec, int8=kernels.int8).items():
            given = _logprobs(folder, kernels, formats, texts)
            pairs = zip(exact, given, strict=True)
            found[name] = sum(float((true.exp() * (true - of)).sum()) for true, of in pairs) / tokens
    return found


def _texts(folder: Path, samples: Sequence[Sample]) -> list[_Text]:
    template, tokenizer = ChatTemplate.load(folder), Tokenizer.load(folder)
    texts: list[_Text] = []
    for sample in samples:
        messages, tools = sample.conversation
        prompt = tokenizer.encode(template.render(messages, tools=tools), add_special_tokens=False)
        answer = (*tokenizer.encode(sample.written, add_special_tokens=False), tokenizer.eos_ids[0])
        texts.append((prompt, answer))
    return texts


def _logprobs(
    folder: Path, kernels: Kernels, fmt: WeightFormat | LayerFormats, texts: Sequence[_Text]
) -> Iterator[Tensor]:
    """[answers' tokens, vocabulary] float32, some texts at a time."""
    decoder = load_decoder(folder, kernels, dtype="float32", fmt=fmt).decoder
    for start in range(0, len(texts), _TOGETHER):
        yield _step(decoder, texts[start : start + _TOGETHER])


def _step(decoder: LanguageModel, texts: Sequence[_Text]) -> Tensor:
    """One step over whole texts, each with a block of its own."""
    known = [(*prompt, *answer[:-1]) for prompt, answer in texts]
    counts = [len(tokens) for tokens in known]
    block = max(counts)
    positions = torch.cat([torch.arange(count) for count in counts])
    slots = torch.cat([torch.arange(count) + place * block for place, count in enumerate(counts)])
    ends = torch.tensor(counts).cumsum(0).tolist()
    rows = torch.cat([torch.arange(e - len(answer), e) for e, (_, answer) in zip(ends, texts, strict=True)])
    store = KVStore(decoder.spec, len(texts), block, decoder.dtype, torch.device("cpu"))
    batch = AttentionBatch(counts, counts, [[place] for place in range(len(texts))], slots, block)
    tokens = torch.tensor([token for tokens in known for token in tokens])
    return decoder.forward(tokens, positions, batch, store.layers, rows).float().log_softmax(dim=-1)
