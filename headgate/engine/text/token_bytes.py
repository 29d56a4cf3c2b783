"""The bytes a token stands for, for the two ways vocabularies spell bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from headgate.engine.text.folder import TokenizerError

Spelling = Literal["byte-level", "byte-fallback", "metaspace", "wordpiece", "plain"]
"""byte-level: tokens are bytes in the GPT-2 alphabet. byte-fallback: SentencePiece, U+2581 for a space and tokens like
`<0x0A>` for bytes. metaspace: the same without byte tokens. wordpiece: `##` before a continuation. plain: text."""


def byte_alphabet() -> dict[str, int]:
    """The characters by which byte-level BPE (GPT-2) spells the 256 bytes.

    Printable Latin-1 characters stand for themselves; the other 68 bytes, in order, for U+0100 and the next ones.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


def stages(decoder: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """The steps of the "decoder" of a `tokenizer.json`, sequences taken apart."""
    if decoder is None:
        return
    if decoder.get("type") == "Sequence":
        for part in decoder.get("decoders", ()):
            yield from stages(part)
    else:
        yield decoder


def spelling_of(decoder: Mapping[str, Any] | None) -> Spelling:
    """How the vocabulary that this decoder reads spells text.

    Raises:
        TokenizerError: bytes are mixed with other rules, so that no text could be called final.
    """
    kinds = {str(stage.get("type")) for stage in stages(decoder)}
    if "ByteLevel" in kinds:
        others = kinds - {"ByteLevel", "Fuse"}
        if others:
            raise TokenizerError(f"the decoder combines ByteLevel with {sorted(others)}; ByteLevel alone is accepted")
        return "byte-level"
    if "ByteFallback" in kinds:
        return "byte-fallback"
    if kinds & {"Metaspace", "Replace"}:
        return "metaspace"
    return "wordpiece" if "WordPiece" in kinds else "plain"


def longest_token(config: Mapping[str, Any]) -> int:
    """Most characters of a text that one token of a `tokenizer.json` stands for; 0 where that cannot be told.

    It can with byte-level BPE where nothing is taken off a text before: every byte is part of a token then.
    """
    model, added, cut = config["model"], config.get("added_tokens", ()), json.dumps(config.get("pre_tokenizer"))
    kinds = set(re.findall(r'"type": "(\w+)"', cut))
    whole = (
        model["type"] == "BPE"
        and config.get("normalizer") is None
        and {"ByteLevel"} <= kinds <= {"ByteLevel", "Sequence", "Split", "Digits"}
        and '"behavior": "Removed"' not in cut
        and not any(token["lstrip"] or token["rstrip"] for token in added)
        and byte_alphabet().keys() <= model["vocab"].keys()
    )
    return max(map(len, (*model["vocab"], *(token["content"] for token in added)))) if whole else 0


def ids_end(config: Mapping[str, Any]) -> int:
    """The first token id above all of a `tokenizer.json`: the number of tokens, or more where ids were left out."""
    entries = config["model"]["vocab"]
    # By token, or of Unigram models in their order.
    ids: list[int] = list(entries.values() if isinstance(entries, dict) else range(len(entries)))
    return 1 + max((*ids, *(token["id"] for token in config.get("added_tokens", ()))), default=-1)


def byte_of_fallback_token(token: str) -> int | None:
    """The byte of a SentencePiece byte token such as `<0x0A>`; None for any other token."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return int(token[3:5], 16)
        except ValueError:
            return None
    return None


def bytes_of(token: str, spelling: Spelling, alphabet: Mapping[str, int]) -> bytes:
    """The bytes that `token`, an entry of the vocabulary, adds to the text.

    A token with a character outside the byte alphabet (an added token, say) stands for its own UTF-8 bytes; that is the
    rule of the byte-level decoder itself.
    """
    if spelling == "byte-level":
        spelled = [alphabet.get(character) for character in token]
        return token.encode() if None in spelled else bytes(byte for byte in spelled if byte is not None)
    if spelling == "byte-fallback" and (byte := byte_of_fallback_token(token)) is not None:
        return bytes((byte,))
    if spelling in ("byte-fallback", "metaspace"):
        return token.replace("\u2581", " ").encode()
    return token.removeprefix("##").encode() if spelling == "wordpiece" else token.encode()
