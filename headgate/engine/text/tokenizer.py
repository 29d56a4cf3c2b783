"""The tokenizer of a model: text to token ids and back."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import tokenizers

from headgate.engine.text.folder import TokenizerError, TokenizerFolder
from headgate.engine.text.harmony import ENDS, MARKS
from headgate.engine.text.token_bytes import (
    Spelling,
    byte_alphabet,
    byte_of_fallback_token,
    bytes_of,
    ids_end,
    longest_token,
    spelling_of,
)


class Tokenizer:
    """A fast tokenizer read from a Hugging Face folder. Thread-safe: it never changes after it is made.

    Attributes:
        vocab_size: all token ids are below it, added ones too; a model's own vocabulary may be padded beyond it.
        special_ids: tokens that are never part of shown text, the end-of-sequence tokens among them.
        eos_ids: end-of-sequence tokens: of `generation_config.json`, else of `config.json`; then the tokenizer's own.
        known_eos_ids: those of them that are in the vocabulary.
        bos_id: the begin-of-sequence token, if there is one.
        spelling: how the vocabulary spells text.
    """

    def __init__(self, backend: tokenizers.Tokenizer, folder: TokenizerFolder) -> None:
        """Wrap a `tokenizers.Tokenizer`; `load` is the usual way."""
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        config: dict[str, Any] = json.loads(backend.to_str())
        self.spelling: Spelling = spelling_of(config.get("decoder"))
        self.vocab_size = ids_end(config)
        self.bos_id = self.token(folder.special_tokens.get("bos_token"))
        own_eos = self.token(folder.special_tokens.get("eos_token"))
        # Who tunes a model for chat often names the new end in the tokenizer only, beside the base model's other files.
        own = () if own_eos is None else (own_eos,)
        self.eos_ids: tuple[int, ...] = (*folder.eos_token_ids, *own)
        marks, ends = ([self.token(text) for text in texts] for texts in (MARKS, ENDS))
        if None not in (*marks, *ends):
            # Files of tuned models may name one end of harmony, and its model would answer its own calls; or the end of
            # a message, behind which the answer is yet to come.
            self.eos_ids = (
                *(token for token in self.eos_ids if token not in marks),
                *(end for end in ends if end is not None),
            )
        self.eos_ids = tuple(dict.fromkeys(self.eos_ids))
        self.known_eos_ids = tuple(token for token in self.eos_ids if backend.id_to_token(token) is not None)
        named = (self.token(text) for text in (*folder.special_tokens.values(), *folder.additional_special_tokens))
        added = (token for token, entry in backend.get_added_tokens_decoder().items() if entry.special)
        self.special_ids = frozenset({*added, *self.eos_ids, *(token for token in named if token is not None)})
        self._longest = longest_token(config)
        self._bytes = _TokenBytes(backend, self.spelling, frozenset())
        self._shown_bytes = _TokenBytes(backend, self.spelling, self.special_ids)

    def showing(self, texts: Collection[str], apart: str = "") -> Tokenizer:
        """The same tokenizer, for which special tokens with these texts are shown; end-of-sequence tokens never are.

        `apart`: what stands before each in shown bytes, to tell it from the same text in letters.
        """
        shown = {token for text in texts if (token := self.token(text)) is not None} & self.special_ids
        shown.difference_update(self.eos_ids)
        if not shown:
            return self
        other = copy(self)
        other.special_ids = self.special_ids - shown
        other._shown_bytes = _TokenBytes(self._backend, self.spelling, other.special_ids)
        if apart:
            other._shown_bytes.update({token: apart.encode() + self.token_bytes(token) for token in shown})
        return other

    def same_tokens(self, other: Tokenizer) -> bool:
        """Whether each token has the same number and text in both, added ones too."""
        return self._backend.get_vocab(with_added_tokens=True) == other._backend.get_vocab(with_added_tokens=True)

    @staticmethod
    def file_of(folder: Path) -> Path:
        """Where `load` finds the tokenizer.

        Raises:
            TokenizerError: there is none, or no such folder.
        """
        if not folder.is_dir():
            raise TokenizerError(f"{folder}: no such folder; a Hugging Face model folder is expected")
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise TokenizerError(f"{path}: the file is missing; slow tokenizers (tokenizer.model only) are not read")
        return path

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read `tokenizer.json` and the side files beside it.

        Raises:
            TokenizerError: a file is missing or damaged; the message names it.
        """
        path = cls.file_of(folder)
        side_files = TokenizerFolder.read(folder)
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise TokenizerError(f"{path}: not a tokenizer: {error}") from error
        try:
            return cls(backend, side_files)
        except TokenizerError as error:
            raise TokenizerError(f"{path}: {error}") from error

    def token(self, text: str | None) -> int | None:
        """The token that is spelled so, if there is one."""
        token: int | None = None if text is None else self._backend.token_to_id(text)
        return token

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of `text`. Special tokens spelled out in it are recognised, as rendered chat templates need.

        Args:
            text: any text; lone surrogates become U+FFFD.
            add_special_tokens: add what the tokenizer puts around a text, such as a begin-of-sequence token. A rendered
                chat template has these already.
        """
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        # Not `encode`: that holds the interpreter to its end, and a long prompt would silence every stream meanwhile.
        (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return ids

    def least_tokens(self, text: str) -> int:
        """As few tokens as `text` may have, told by its length alone; 0 where that says nothing."""
        return -(-len(text) // self._longest) if self._longest else 0

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of `ids`. Ids outside the vocabulary have none."""
        kept = [token for token in ids if not (skip_special and token in self.special_ids)]
        text: str = self._backend.decode(kept, skip_special_tokens=False)
        return text

    def token_text(self, token_id: int) -> str:
        """The text of one token in the middle of a text, U+FFFD where it holds part of a character."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token in the middle of a text; empty outside the vocabulary."""
        return self._bytes[token_id]

    def shown_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of tokens in the middle of a text, one after the other. Special tokens have none."""
        return b"".join(map(self._shown_bytes.__getitem__, ids))

    def is_byte_fallback(self, token_id: int) -> bool:
        """Whether the token is one byte of a character, spelled like `<0x0A>`."""
        if self.spelling != "byte-fallback":
            return False
        token = self._backend.id_to_token(token_id)
        return token is not None and byte_of_fallback_token(token) is not None

    def visible(self, ids: Sequence[int]) -> list[int]:
        """`ids` without special tokens."""
        return [token for token in ids if token not in self.special_ids]


class _TokenBytes(dict[int, bytes]):
    """Bytes by token, filled as tokens turn up: most of a large vocabulary never does. A lost race between threads only
    computes an entry twice."""

    def __init__(self, backend: tokenizers.Tokenizer, spelling: Spelling, silent: frozenset[int]) -> None:
        """`silent` tokens have no bytes, like those outside the vocabulary."""
        super().__init__()
        self._backend = backend
        self._spelling = spelling
        self._silent = silent
        self._alphabet = byte_alphabet()

    def __missing__(self, token_id: int) -> bytes:
        token = None if token_id in self._silent else self._backend.id_to_token(token_id)
        known = self[token_id] = b"" if token is None else bytes_of(token, self._spelling, self._alphabet)
        return known
