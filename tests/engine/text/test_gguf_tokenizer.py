"""Tokenizers of GGUF files: the same tokens as those that they were made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from gguf import TokenType
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.folder import TokenizerError
from headgate.engine.text.gguf_tokenizer import gguf_tokenizer_files
from headgate.engine.text.tokenizer import Tokenizer

TEXTS = (
    "",
    " ",
    "The quick brown fox, and then: the other one!",
    "  two spaces,\ttabs\t\tand   more    \n\n\n  lines\r\n\r\nend  ",
    "I'm sure we'LL see what they'Ve done; it'S John's, isn't it? 'twas",
    "3 33 333 3333 33333333 3.14 1,000,000 ½ ٣٤ 二十",
    "HTTPServer camelCase SNAKE_CASE x=y+1; // comment /* */\n\tif (a[i] != b->c) { return; }",
    "Grüße aus Köln, ça va à Þórshöfn? ŁÓDŹ ﬁn",
    "你好，世界。日本語のテキスト 한국어 텍스트",
    "नमस्ते दुनिया ไทย العربية עברית",
    "🙂🙃 👩‍👩‍👧 🇩🇪 ✅ e\u0301 \u00a0\u2003nbsp \ufeff\u200b",
    "<s>[INST] not special </s> <|im_start|>user\nHi<|im_end|>\n<think>\nhm\n</think> <|im_end|>  <think>",
    "aaaaaaaaaaaaaaaaaaaaaaa ------======= ......!!!!??",
)
CORPUS = [*TEXTS, "the quick brown fox jumps over the lazy dog and then the other one " * 3, "return the other if then"]
SPECIALS, PLAIN = ["<|im_start|>", "<|im_end|>"], ["<think>", "</think>"]


def byte_level(pre: pre_tokenizers.PreTokenizer, normalizer: Any = None, **options: Any) -> tokenizers.Tokenizer:
    """Trained on CORPUS, with tokens that are found as they are."""
    made = tokenizers.Tokenizer(models.BPE(**options))
    made.pre_tokenizer, made.decoder = pre, decoders.ByteLevel()
    if normalizer is not None:
        made.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    made.add_special_tokens(SPECIALS)
    made.add_tokens([AddedToken(text, normalized=False) for text in PLAIN])
    return made


def split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )


GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2])
SPLITS = {name: split(pattern) for name, pattern in GGUF_PRE_TOKENIZER_SPLITS.items()}
# What tokenizer.json of the models has that llama.cpp means by a name.
ORIGINALS: Mapping[str, tuple[pre_tokenizers.PreTokenizer, Any, bool]] = {
    "gpt-2": (GPT2, None, False),
    "olmo": (GPT2, normalizers.NFC(), False),
    **dict.fromkeys(("smollm", "starcoder", "refact"), (DIGITS, None, False)),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), (SPLITS["llama-bpe"], None, True)),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), (SPLITS["dbrx"], None, False)),
    "qwen2": (SPLITS["qwen2"], normalizers.NFC(), False),
    "deepseek-r1-qwen": (SPLITS["deepseek-r1-qwen"], None, False),
    **{name: (SPLITS[name], None, False) for name in ("gpt-4o", "llama4")},
    "tekken": (SPLITS["tekken"], None, True),
    "seed-coder": (
        split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        None,
        False,
    ),
}


def metadata(original: tokenizers.Tokenizer, **stated: Any) -> dict[str, Any]:
    """What llama.cpp's converter makes of a tokenizer."""
    content = json.loads(original.to_str())
    added = {token["id"]: token for token in content["added_tokens"]}
    texts = {number: text for text, number in content["model"]["vocab"].items()}
    texts |= {number: token["content"] for number, token in added.items()}
    kinds = {
        number: TokenType.CONTROL if token["special"] else TokenType.USER_DEFINED for number, token in added.items()
    }
    size = max(texts) + 3  # rows of the embedding that are no token's
    found = {
        "model": "gpt2",
        "tokens": [texts.get(number, f"[PAD{number}]") for number in range(size)],
        "token_type": [
            int(kinds.get(number, TokenType.NORMAL) if number in texts else TokenType.UNUSED) for number in range(size)
        ],
        "merges": [" ".join(merge) for merge in content["model"]["merges"]],
        "eos_token_id": original.token_to_id("<|im_end|>"),
        "bos_token_id": original.token_to_id("<|im_start|>"),
        **stated,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in found.items() if value is not None}


def load(content: Mapping[str, Any], folder: Path) -> Tokenizer:
    for name, file in gguf_tokenizer_files(content).items():
        (folder / name).write_text(json.dumps(file))
    return Tokenizer.load(folder)


@pytest.mark.parametrize("name", ORIGINALS)
def test_texts_are_cut_as_by_the_original(name: str, tmp_path: Path) -> None:
    pre, normalizer, whole = ORIGINALS[name]
    original = byte_level(pre, normalizer, ignore_merges=whole)
    ours = load(metadata(original, pre=name), tmp_path)
    for text in TEXTS:
        expected = original.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_special_tokens=False) == expected, text
        assert ours.decode(expected, skip_special=False) == original.decode(expected, skip_special_tokens=False)
    assert ours.vocab_size == original.get_vocab_size()
    assert ours.spelling == "byte-level"
    assert {ours.token_text(token) for token in ours.special_ids} == {*SPECIALS}


def test_every_way_to_cut_is_tested(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError) as refused:
        load(metadata(byte_level(GPT2), pre="deepseek-coder"), tmp_path)
    told = str(refused.value)
    assert told.startswith("tokenizer.ggml.pre is 'deepseek-coder', which is no way to cut texts that is known; ")
    assert {part.strip("' ") for part in told.partition(";")[2].removesuffix(" are").split(",")} == {*ORIGINALS}


@pytest.mark.parametrize(
    ("pre", "stated", "bos", "eos"),
    [
        ("gpt-2", {}, False, False),
        ("llama-bpe", {}, True, False),
        ("llama-bpe", {"add_bos_token": False}, False, False),
        ("qwen2", {"add_bos_token": True, "add_eos_token": True}, True, True),
        ("tekken", {"bos_token_id": None}, False, False),
    ],
)
def test_what_is_put_around_a_text(pre: str, stated: dict[str, Any], bos: bool, eos: bool, tmp_path: Path) -> None:
    original = byte_level(GPT2)
    ours = load(metadata(original, pre=pre, **stated), tmp_path)
    start, end = (original.token_to_id(text) for text in SPECIALS)
    plain = ours.encode("Hi there", add_special_tokens=False)
    assert ours.encode("Hi there", add_special_tokens=True) == [*[start] * bos, *plain, *[end] * eos]
    assert ours.bos_id == (None if "bos_token_id" in stated else start)


def test_answers_end_with_what_any_of_the_models_files_would_name(tmp_path: Path) -> None:
    original = byte_level(GPT2)
    original.add_special_tokens(["<|endoftext|>", "<|eot_id|>", "<|fim_pad|>", "<|eom_id|>", "<|tool|>"])
    ids = {text: original.token_to_id(text) for text in ("<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|tool|>")}
    ours = load(metadata(original, pre="gpt-2", eot_token_id=ids["<|tool|>"]), tmp_path)
    assert ours.eos_ids[0] == original.token_to_id("<|im_end|>")
    assert set(ours.eos_ids) == {original.token_to_id("<|im_end|>"), *ids.values()}


def test_chat_templates_come_with_their_names(tmp_path: Path) -> None:
    content = {
        **metadata(byte_level(GPT2), pre="gpt-2"),
        "tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}",
        "tokenizer.chat_template.tool_use": "tools: {{ messages[0].content }}",
        "tokenizer.chat_templates": ["tool_use"],
    }
    load(content, tmp_path)
    template = ChatTemplate.load(tmp_path)
    assert template.render([{"role": "user", "content": "Hi"}]) == "<|im_start|>Hi"
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    assert template.render([{"role": "user", "content": "Hi"}], tools=tools) == "tools: Hi"


def pieces(*, prefix: bool) -> tokenizers.Tokenizer:
    """SentencePiece's kind: spaces in pieces, bytes for what has none; as Llama 2, or without a space in front."""
    made = tokenizers.Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    space = normalizers.Replace(" ", "\u2581")
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), space]) if prefix else space
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    trained = tokenizers.Tokenizer(models.BPE())
    trained.normalizer = made.normalizer
    fixed = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    alphabet = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,'!?-=<>|/_\n", "\u2581", "ü", "é"]
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=fixed,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
        max_token_length=12,
    )
    trained.train_from_iterator(CORPUS, trainer)
    content = json.loads(trained.to_str())["model"]
    made.model = models.BPE(
        content["vocab"], [tuple(m) for m in content["merges"]], byte_fallback=True, fuse_unk=True, unk_token="<unk>"
    )
    made.add_special_tokens(fixed[:3])
    made.add_tokens([AddedToken(text, normalized=False) for text in PLAIN])
    return made


def piece_metadata(original: tokenizers.Tokenizer, **stated: Any) -> dict[str, Any]:
    """As of a SentencePiece model: a score for each piece, the better the earlier it is merged."""
    content = json.loads(original.to_str())["model"]
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(content["merges"]):
        ranks.setdefault(left + right, rank)
    found = metadata(original, model="llama", pre="default", merges=None, bos_token_id=1, eos_token_id=2)
    tokens, types = found["tokenizer.ggml.tokens"], found["tokenizer.ggml.token_type"]
    for number, token in enumerate(tokens):
        if token.startswith("<0x"):
            types[number] = int(TokenType.BYTE)
    found["tokenizer.ggml.token_type"][0] = int(TokenType.UNKNOWN)
    found["tokenizer.ggml.scores"] = [-float(ranks.get(token, 1e6)) for token in tokens]
    found["tokenizer.ggml.unknown_token_id"] = 0
    return found | stated


def merged(text: str, scores: Mapping[str, float]) -> list[str]:
    """SentencePiece's own way: of all neighbours the pair that makes the best piece, the first of several."""
    parts = list(text)
    while True:
        pairs = [(scores[a + b], -at) for at, (a, b) in enumerate(pairwise(parts)) if a + b in scores]
        if not pairs:
            return parts
        at = -max(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


@pytest.mark.parametrize("prefix", [True, False])
def test_pieces_are_merged_as_by_the_original(prefix: bool, tmp_path: Path) -> None:
    original = pieces(prefix=prefix)
    flag = {} if prefix else {"tokenizer.ggml.add_space_prefix": False}
    ours = load(piece_metadata(original, **flag), tmp_path)
    for text in TEXTS:
        expected = original.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_special_tokens=False) == expected, text
        assert ours.encode(text, add_special_tokens=True) == [1, *expected]
        assert ours.decode(expected, skip_special=False) == original.decode(expected, skip_special_tokens=False)
    assert ours.spelling == "byte-fallback"
    assert (ours.bos_id, ours.eos_ids) == (1, (2,))


def test_merges_are_those_of_the_scores(tmp_path: Path) -> None:
    content = piece_metadata(pieces(prefix=True))
    tokens, types = content["tokenizer.ggml.tokens"], content["tokenizer.ggml.token_type"]
    scores = {
        token: score
        for token, kind, score in zip(tokens, types, content["tokenizer.ggml.scores"], strict=True)
        if kind == TokenType.NORMAL
    }
    ours = load(content, tmp_path)
    words = ["the", "quick", "brown", "jumps", "over", "lazy", "dog", "and", "then", "other", "return", "if"]
    for first in words:
        for second in words:
            found = ours.encode(f"{first} {second}", add_special_tokens=False)
            assert [tokens[token] for token in found] == merged(f"\u2581{first}\u2581{second}", scores)


def test_runs_of_spaces_are_pieces_and_gemmas_order_is_that_of_its_tokens(tmp_path: Path) -> None:
    """The file has them as spaces, and scores that say nothing."""
    letters = ["<unk>", "<bos>", "<eos>", "\u2581", "a", "b", "\u2581a", "ab", "  ", "    ", "\u2581ab"]
    content = {
        "general.architecture": "gemma3",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": letters,
        "tokenizer.ggml.scores": [0.0] * len(letters),
        "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 1, 4, 4, 1],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_space_prefix": False,
    }
    ours = load(content, tmp_path)
    assert texts(ours, letters, "    ") == ["    "]
    # First "▁a", then "▁▁" and at last "▁ab": "ab" comes after the first, and finds no "a" any more.
    assert texts(ours, letters, "    ab ab") == ["  ", "\u2581", "\u2581ab", "\u2581ab"]


def test_phi_3_strips_what_follows_its_marks(tmp_path: Path) -> None:
    original = pieces(prefix=True)
    for architecture, rest in (("phi3", "Hi"), ("llama", "\n Hi")):
        ours = load(piece_metadata(original, **{"general.architecture": architecture}), tmp_path)
        end = original.token_to_id("</s>")
        expected = [end, *original.encode(rest, add_special_tokens=False).ids]
        assert ours.encode("</s>\n Hi", add_special_tokens=False) == expected


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "tokenizer.ggml.tokens has a token twice"),
        ({"tokenizer.ggml.tokens": ["a" * 2000, "b"]}, "a token of 2000 characters; 1024 is the most"),
        ({"tokenizer.ggml.scores": [1.0]}, "tokenizer.ggml.scores has 1 entries for 2 tokens"),
        ({"tokenizer.ggml.scores": "best"}, "tokenizer.ggml.scores is missing, or no list of float"),
        ({"tokenizer.ggml.bos_token_id": -1}, "tokenizer.ggml.bos_token_id is -1; ids from 0 to 1 are tokens"),
    ],
)
def test_what_no_tokenizer_has_is_refused(stated: dict[str, Any], told: str) -> None:
    content = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a", "b"], **stated}
    with pytest.raises(TokenizerError, match=told):
        gguf_tokenizer_files(content)


def texts(tokenizer: Tokenizer, tokens: Sequence[str], text: str) -> list[str]:
    return [tokens[token] for token in tokenizer.encode(text, add_special_tokens=False)]
