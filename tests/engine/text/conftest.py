"""Small tokenizers of the two great families, made on the spot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from headgate.engine.text.folder import TokenizerFolder
from headgate.engine.text.tokenizer import Tokenizer

TEXT = [
    "The quick brown fox jumps over the lazy dog. How are you today? I'm fine.\n",
    "Größe, façade, naïve, señor, Übermut, Ångström — “quoted”.\n",
    "Съешь ещё этих мягких французских булок.\n",
    "今日は良い天気ですね。你好,世界。안녕하세요 세계\n",
    "नमस्ते दुनिया مرحبا بالعالم שלום עולם\n",
    "emoji 🎉🚀👩‍👩‍👧‍👦 and maths ∑∫√ 𝔘𝔫𝔦\n",
    "def f(x):\n    return x ** 2\n",
]
MARKERS = ["<|start|>", "<|end|>", "<|stop|>"]


def byte_level_backend() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=MARKERS,
        show_progress=False,
    )
    backend.train_from_iterator(TEXT * 3, trainer)
    backend.add_tokens([AddedToken("two words", normalized=False), AddedToken("<tool🔧>"), AddedToken("Ġé")])
    return backend


def byte_fallback_backend() -> tokenizers.Tokenizer:
    """Like Llama 2: U+2581 for a space, `<0xXX>` for bytes outside the vocabulary, a leading space taken off."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "▁▁", "▁a", "▁the", "a", "b", "the", "é", "你", "�", ".", "\n", "▁e", "x▁y", "<0x", "<0xZZ>"]
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)}, merges=[], byte_fallback=True, unk_token="<unk>"
        )
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return backend


def metaspace_backend() -> tokenizers.Tokenizer:
    backend = byte_fallback_backend()
    backend.decoder = decoders.Metaspace()
    return backend


def word_piece_backend() -> tokenizers.Tokenizer:
    vocab = ["[UNK]", "play", "##ing", "##ed", ".", "don", "'", "t", "good", "##s"]
    backend = tokenizers.Tokenizer(models.WordPiece({w: i for i, w in enumerate(vocab)}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    return backend


def wrapped(backend: tokenizers.Tokenizer) -> Tokenizer:
    return Tokenizer(backend, TokenizerFolder({}, (), (), {}))


@pytest.fixture(scope="session")
def backends() -> dict[str, tokenizers.Tokenizer]:
    return {
        "byte_level": byte_level_backend(),
        "byte_fallback": byte_fallback_backend(),
        "metaspace": metaspace_backend(),
        "word_piece": word_piece_backend(),
    }


@pytest.fixture(scope="session")
def byte_level(backends: dict[str, tokenizers.Tokenizer]) -> Tokenizer:
    return wrapped(backends["byte_level"])


@pytest.fixture(scope="session")
def byte_fallback(backends: dict[str, tokenizers.Tokenizer]) -> Tokenizer:
    return wrapped(backends["byte_fallback"])


@pytest.fixture(scope="session")
def metaspace(backends: dict[str, tokenizers.Tokenizer]) -> Tokenizer:
    return wrapped(backends["metaspace"])


@pytest.fixture(scope="session")
def word_piece(backends: dict[str, tokenizers.Tokenizer]) -> Tokenizer:
    return wrapped(backends["word_piece"])


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes a folder with a byte-level tokenizer and the given side files (objects, or raw text)."""

    def write(**files: Any) -> Path:
        byte_level_backend().save(str(tmp_path / "tokenizer.json"))
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            path = tmp_path / (f"{name}.jinja" if name == "chat_template" else f"{name}.json")
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return write
