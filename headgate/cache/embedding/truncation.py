"""Of a long text as much as a tokenizer of BERT's kind needs, so that megabytes take no longer than a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_LETTER, _DROPPED, _BLANK, _SIGN = "ldbs"
"""A part of a word; what is left out, as accents and control characters are; what stands between words; and what is a
word by itself, as punctuation and Chinese characters are."""
_RUN = re.compile("l+|d+|b[bd]*|s+")
_REST = re.compile("[ld]+|b[bd]*|s+")
"""The same after so many letters that the word is unknown, whatever comes."""
_BLOCK = 4096
_ASCII = "".join(map(chr, range(128)))


class Beginnings:
    """Shortens texts, and no token that is read of them becomes another one.

    Such a tokenizer takes each character by itself, and each word by itself: all words of more than so many letters are
    the same unknown one. So what comes after the words that are read may go, and of a long word all but its beginning.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """For a tokenizer that `can` be served."""
        self._tokenizer = tokenizer
        self._most_letters = int(tokenizer.model.max_input_chars_per_word)
        self._ascii = self._kinds(_ASCII)
        contents = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        self.margin = max(map(len, contents), default=0)
        """Characters at the end of what `of` gives that may be read otherwise in the whole text: the beginning of a
        special token."""

    @staticmethod
    def can(tokenizer: Tokenizer) -> bool:
        """Whether a tokenizer is of the kind."""
        from tokenizers import models, normalizers, pre_tokenizers

        return (
            isinstance(tokenizer.normalizer, normalizers.BertNormalizer)
            and isinstance(tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
            and isinstance(tokenizer.model, models.WordPiece)
            # Nothing that is left out may be a part of one, nor may one come about by that.
            and all(
                re.fullmatch(r"\[\w{1,50}\]", token.content, re.ASCII) and not token.single_word
                for token in tokenizer.get_added_tokens_decoder().values()
            )
        )

    def of(self, text: str, words: int) -> tuple[str, bool]:
        """The first `words` words of a text or more, shortened, and whether that is all of them."""
        kinds = dict(self._ascii)
        kept: list[str] = []
        last, letters, found = "", 0, 0
        for start in range(0, len(text), _BLOCK):
            block = text[start : start + _BLOCK]
            if not block.isascii():
                kinds |= self._kinds(character for character in set(block) if ord(character) not in kinds)
            told, at = block.translate(kinds), 0
            while at < len(told):
                unknown = letters > self._most_letters
                run = (_REST if unknown else _RUN).match(told, at)
                assert run is not None
                kind, begin, at = told[at], at, run.end()
                if kind in (_LETTER, _DROPPED) and unknown:
                    continue
                if kind == _LETTER:
                    new = not letters
                    end = min(at, begin + self._most_letters + 1 - letters)
                    letters += at - begin
                elif kind == _SIGN:
                    new, end, letters = True, at, 0
                else:
                    new, end = False, begin + 1
                    letters = 0 if kind == _BLANK else letters
                    if last in (kind, _BLANK):
                        continue
                if new and found >= words:
                    return "".join(kept), False
                found += at - begin if kind == _SIGN else new
                kept.append(block[begin:end])
                last = kind
        return "".join(kept), True

    def _kinds(self, characters: Iterable[str]) -> Mapping[int, str]:
        """What kind each is of, as the tokenizer takes it between two letters."""
        asked = sorted(characters)
        if not asked:
            return {}
        # No character becomes a word of this one letter.
        plain = self._tokenizer.normalizer.normalize_str("".join(f" q a{character}a" for character in asked))
        kinds: list[str] = []
        pieces: list[str] = []
        for piece, _ in (*self._tokenizer.pre_tokenizer.pre_tokenize_str(plain)[1:], ("q", (0, 0))):
            if piece != "q":
                pieces.append(piece)
                continue
            kinds.append(_BLANK if pieces == ["a", "a"] else _DROPPED if pieces == ["aa"] else "sl"[len(pieces) == 1])
            pieces.clear()
        return dict(zip(map(ord, asked), kinds, strict=True))
