"""The tokenizer of a GGUF file's metadata, as the files of a Hugging Face folder.

A GGUF file has a vocabulary with a type for each token, merges or scores, and the name of the way that texts are cut
before. What that way is only programs know: those that are known here are what the same models have in their own
tokenizer.json, and of another no token would be sure, so it is refused. Source of the names: llama.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headgate.engine.text.folder import TokenizerError
from headgate.engine.text.harmony import ENDS, MARKS

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_ROLES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_ENDS = frozenset(
    {
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"),
        *("<EOT>", "<eos>", *ENDS),
    }
)
"""Tokens that end an answer, whatever the metadata says: llama.cpp knows them by their text, too."""
_SPACE = "\u2581"
_LONGEST = 1024
"""Characters of a token whose merges are sought: all its parts are looked at, and pieces have some tens."""
_SEPARATORS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _words(digits: str, symbols: str = r"[\r\n]*") -> str:
    """As tiktoken's cl100k cuts: runs of letters with what stands before one, and digits."""
    return rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+{symbols}|{_SEPARATORS}"


def _cased(digits: str, short: str) -> str:
    """As tiktoken's o200k cuts: where capitals follow small letters, too."""
    before, behind = r"[^\r\n\p{L}\p{N}]?", rf"({short})?" if short else ""
    words = f"{before}{_UPPER}*{_LOWER}+{behind}|{before}{_UPPER}+{_LOWER}*{behind}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SEPARATORS}"


@dataclass(frozen=True, slots=True)
class _Cut:
    """How texts are cut before merges.

    Attributes:
        pattern: what a piece is; None: GPT-2's, which the tokenizers library has.
        digits: each is a piece by itself, before all else.
        whole: a piece that is a token is that token, whatever the merges say.
        bos: a text begins with a token of its own, where the metadata does not say.
        composed: characters are put together first (NFC).
    """

    pattern: str | None
    digits: bool = False
    whole: bool = False
    bos: bool = False
    composed: bool = False


_LLAMA3 = _Cut(_words(r"\p{N}{1,3}"), whole=True, bos=True)
_CL100K = _Cut(_words(r"\p{N}{1,3}"))
_QWEN2 = _words(r"\p{N}")
_O200K = _Cut(_cased(r"\p{N}{1,3}", _SHORT))
_CUTS: Mapping[str, _Cut] = {
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), _LLAMA3),
    **dict.fromkeys(("smaug-bpe", "dbrx", "glm4", "chatglm-bpe"), _CL100K),
    "qwen2": _Cut(_QWEN2, composed=True),
    "deepseek-r1-qwen": _Cut(_QWEN2),
    **dict.fromkeys(("gpt-4o", "llama4"), _O200K),
    "tekken": _Cut(_cased(r"\p{N}", ""), whole=True, bos=True),
    "seed-coder": _Cut(
        rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SEPARATORS}"
    ),
    "gpt-2": _Cut(None),
    "olmo": _Cut(None, composed=True),
    **dict.fromkeys(("smollm", "starcoder", "refact"), _Cut(None, digits=True)),
}


def gguf_tokenizer_files(metadata: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """tokenizer.json, tokenizer_config.json and generation_config.json by name.

    Raises:
        TokenizerError: naming the key that is missing, or has a value that is not known.
    """
    vocabulary = _Vocabulary(metadata)
    return {
        "tokenizer.json": vocabulary.tokenizer(),
        "tokenizer_config.json": vocabulary.sides(),
        "generation_config.json": vocabulary.generation(),
    }


class _Vocabulary:
    """What the metadata says of tokens."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self._model: Literal["gpt2", "llama"] = self._known_model()
        tokens = self._list("tokens", str)
        assert tokens is not None
        self._tokens: Sequence[str] = tokens
        types = self._list("token_type", int)
        self._types = types if types is not None else [_NORMAL] * len(tokens)
        self._cut = self._known_cut() if self._model == "gpt2" else None
        if self._model == "llama":
            # Runs of spaces are written as such, and spelled otherwise where texts are.
            self._types = [_NORMAL if t.isspace() and set(t) == {" "} else k for t, k in self._each()]
            self._tokens = [_SPACE * len(t) if set(t) == {" "} else t for t in tokens]
        self._ids = {token: number for number, (token, kind) in enumerate(self._each()) if kind != _UNUSED}
        if len(self._ids) != sum(kind != _UNUSED for kind in self._types):
            raise TokenizerError("tokenizer.ggml.tokens has a token twice")

    def tokenizer(self) -> dict[str, Any]:
        """The content of tokenizer.json."""
        byte_level = self._model == "gpt2"
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": self._added(),
            "normalizer": self._normalizer(),
            "pre_tokenizer": self._pre_tokenizer() if self._cut is not None else None,
            "post_processor": self._around(),
            "decoder": _BYTE_LEVEL if byte_level else self._decoder(),
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None if byte_level else self._role("unk_token"),
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": not byte_level,
                "byte_fallback": not byte_level,
                "ignore_merges": self._cut is not None and self._cut.whole,
                "vocab": self._ids,
                "merges": self._merges() if byte_level else self._implied_merges(),
            },
        }

    def sides(self) -> dict[str, Any]:
        """The content of tokenizer_config.json."""
        found: dict[str, Any] = {role: text for role in _ROLES if (text := self._role(role)) is not None}
        template = "tokenizer.chat_template"
        named = {
            key.removeprefix(f"{template}."): text
            for key, text in self._metadata.items()
            if key.startswith(f"{template}.") and isinstance(text, str)
        }
        default = self._metadata.get(template)
        if isinstance(default, str):
            named = {"default": default, **named}
        if named:
            found["chat_template"] = [{"name": name, "template": text} for name, text in named.items()]
        return found

    def generation(self) -> dict[str, Any]:
        """The content of generation_config.json: tokens that end an answer, and how the authors sample."""
        ends = [self._token_id(name) for name in ("eos", "eot", "eom")]
        texts = _ENDS - set(MARKS) if all(mark in self._ids for mark in MARKS) else _ENDS
        ends += [self._ids[text] for text in self._tokens if text in texts and text in self._ids]
        found: dict[str, Any] = {"eos_token_id": list(dict.fromkeys(end for end in ends if end is not None))}
        for ours, theirs, least, most in (
            ("temperature", "temp", 0, math.inf),
            ("top_p", "top_p", 0, 1),
            ("top_k", "top_k", -1, math.inf),
        ):
            key = f"general.sampling.{theirs}"
            if (value := self._metadata.get(key)) is None:
                continue
            if type(value) not in (int, float) or not least <= value <= most or value == math.inf:
                wanted = f"a number from {least} {f'to {most}' if most == 1 else 'on'}"
                raise TokenizerError(f"{key} is {value!r}; {wanted} is accepted")
            found |= {"do_sample": True, ours: value}
        return found

    def _added(self) -> list[dict[str, Any]]:
        """Tokens that are found in texts as they are, before these are cut."""
        # Phi-3 was trained with what follows such a token stripped, which no file says; llama.cpp knows it, too.
        strips = self._model == "llama" and self._metadata.get("general.architecture") == "phi3"
        added = []
        for number, (token, kind) in enumerate(self._each()):
            special = kind in (_CONTROL, _UNKNOWN) or (token in _ENDS and kind != _UNUSED)
            if special or kind == _USER_DEFINED:
                strip = strips and token not in ("<unk>", "<s>", "<|endoftext|>")
                added.append(
                    {
                        **{"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": strip},
                        **{"normalized": False, "special": special},
                    }
                )
        return added

    def _normalizer(self) -> dict[str, Any] | None:
        if self._cut is not None:
            return {"type": "NFC"} if self._cut.composed else None
        spelled = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
        if not self._flag("add_space_prefix", default=True):
            return spelled
        return {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": _SPACE}, spelled]}

    def _decoder(self) -> dict[str, Any]:
        steps: list[dict[str, Any]] = [
            {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]
        if self._flag("add_space_prefix", default=True):
            steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
        return {"type": "Sequence", "decoders": steps}

    def _pre_tokenizer(self) -> dict[str, Any]:
        cut = self._cut
        assert cut is not None
        if cut.pattern is None:
            whole = {**_BYTE_LEVEL, "add_prefix_space": False, "use_regex": True}
            steps = [{"type": "Digits", "individual_digits": True}, whole] if cut.digits else [whole]
        else:
            split = {"type": "Split", "pattern": {"Regex": cut.pattern}, "behavior": "Isolated", "invert": False}
            steps = [split, {**_BYTE_LEVEL, "add_prefix_space": False, "use_regex": False}]
        return {"type": "Sequence", "pretokenizers": steps}

    def _around(self) -> dict[str, Any] | None:
        """What is put around a text that asks for special tokens."""
        bos = self._flag("add_bos_token", default=self._cut is None or self._cut.bos) and self._role("bos_token")
        eos = self._flag("add_eos_token", default=False) and self._role("eos_token")
        if not (bos or eos):
            return None
        tokens = {token: self._ids[token] for token in (bos, eos) if token}
        single = [
            *([{"SpecialToken": {"id": bos, "type_id": 0}}] if bos else []),
            {"Sequence": {"id": "A", "type_id": 0}},
            *([{"SpecialToken": {"id": eos, "type_id": 0}}] if eos else []),
        ]
        return {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {t: {"id": t, "ids": [number], "tokens": [t]} for t, number in tokens.items()},
        }

    def _merges(self) -> list[list[str]]:
        merges = []
        stated = self._list("merges", str, alike=False)
        assert stated is not None
        for merge in stated:
            # A token may itself begin with a space.
            at = merge.find(" ", 1)
            left, right = merge[:at], merge[at + 1 :]
            if at < 0 or not right or any(part not in self._ids for part in (left, right, left + right)):
                raise TokenizerError(f"tokenizer.ggml.merges has {merge!r}; two tokens that make a third are expected")
            merges.append([left, right])
        return merges

    def _implied_merges(self) -> list[list[str]]:
        """SentencePiece merges whatever two pieces make the best token; as merges, best ones first."""
        scores: Sequence[float] | None = self._list("scores", float)
        # Gemma's tokens are in the order of its merges, its scores are not.
        if scores is None or str(self._metadata.get("general.architecture")).startswith("gemma"):
            scores = [-float(number) for number in range(len(self._tokens))]
        ids, kinds = self._ids, (_NORMAL, _USER_DEFINED)
        if (longest := max(map(len, self._tokens), default=0)) > _LONGEST:
            raise TokenizerError(f"tokenizer.ggml.tokens has a token of {longest} characters; {_LONGEST} is the most")
        found = [
            (-scores[number], number, ids[token[:at]], ids[token[at:]], token[:at], token[at:])
            for number, (token, kind) in enumerate(self._each())
            if kind in kinds
            for at in range(1, len(token))
            if token[:at] in ids and token[at:] in ids
        ]
        # Pairs that make the same token one after the other, and tokens of one score in their order.
        return [[left, right] for *_, left, right in sorted(found)]

    def _each(self) -> zip[tuple[str, int]]:
        return zip(self._tokens, self._types, strict=True)

    def _known_model(self) -> Literal["gpt2", "llama"]:
        match self._metadata.get("tokenizer.ggml.model"):
            case "gpt2":
                return "gpt2"
            case "llama":
                return "llama"
            case other:
                raise TokenizerError(f"tokenizer.ggml.model is {other!r}; 'gpt2' and 'llama' are read")

    def _known_cut(self) -> _Cut:
        name = self._metadata.get("tokenizer.ggml.pre")
        if not isinstance(name, str) or name not in _CUTS:
            known = ", ".join(map(repr, _CUTS))
            raise TokenizerError(
                f"tokenizer.ggml.pre is {name!r}, which is no way to cut texts that is known; {known} are"
            )
        return _CUTS[name]

    def _role(self, role: str) -> str | None:
        """The text of the token that has a role."""
        number = self._token_id(_ROLES[role])
        return None if number is None or self._types[number] == _UNUSED else self._tokens[number]

    def _token_id(self, name: str) -> int | None:
        key = f"tokenizer.ggml.{name}_token_id"
        number = self._metadata.get(key)
        if number is None:
            return None
        if type(number) is not int or not 0 <= number < len(self._tokens):
            raise TokenizerError(f"{key} is {number!r}; ids from 0 to {len(self._tokens) - 1} are tokens")
        return number

    def _flag(self, name: str, *, default: bool) -> bool:
        return bool(self._metadata.get(f"tokenizer.ggml.{name}", default))

    def _list(self, name: str, kind: type, *, alike: bool = True) -> list[Any] | None:
        """A list of the metadata, as long as that of tokens if they are `alike`; types and scores may be missing."""
        key = f"tokenizer.ggml.{name}"
        values = self._metadata.get(key)
        if values is None and name in ("token_type", "scores"):
            return None
        if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
            raise TokenizerError(f"{key} is missing, or no list of {kind.__name__}")
        if alike and name != "tokens" and len(values) != len(self._tokens):
            raise TokenizerError(f"{key} has {len(values)} entries for {len(self._tokens)} tokens")
        return values


_BYTE_LEVEL: Mapping[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": True,
    "use_regex": True,
}
