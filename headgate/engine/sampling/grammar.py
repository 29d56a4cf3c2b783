"""Grammars: which tokens may come next in an answer of a given form.

A grammar is compiled once, off the event loop, and kept. Each choice walks through its own copy: which tokens may come
next is worked out while the device computes their logits, in a thread beside the step thread, or where kernels compute
several steps in one call by these (`Forms`). Grammars are llguidance's: Lark with JSON schemas in it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headgate.engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_KEPT = 128
"""Compiled grammars of a model that are kept, the last used ones."""
_SPELLED = 4096
"""Texts of which the tokens are kept."""
_BEFORE = "\n"
"""What a text that goes on is spelled after."""
_REASONS = {"NoExtensionBias": "no token may come next"}
"""What llguidance only says by a name."""
_SPELLINGS = ("byte-level", "byte-fallback", "metaspace")


class GrammarError(ValueError):
    """A grammar that cannot be followed. The message is for the caller of the API."""


class Guide:
    """One choice's way through its grammar. For one thread at a time."""

    def __init__(self, matcher: LLMatcher, start: int, tokens: int, vocab_size: int, pool: ThreadPoolExecutor) -> None:
        self._matcher = matcher
        self._followed = start
        self._tokens = tokens
        self._vocab_size = vocab_size
        self._pool = pool
        self._next: Future[Tensor] | None = None
        self.leads = True
        """Whether the last choice had to be made from the allowed tokens, so that the next one may have to, too."""

    def follow(self, tokens: Sequence[int]) -> None:
        """Go the way that the choice went. `tokens`: all of its sequence."""
        for token in tokens[self._followed :]:
            self.take(token)

    def take(self, token: int) -> None:
        """Go on by a token that is allowed."""
        self._matcher.consume_token(token)
        self._followed += 1

    def takes(self, token: int) -> bool:
        """Go on by a token if it is allowed, and say whether. It may be -1, or one that the tokenizer does not have.

        Takes a fraction of the time that `allow` takes. No for a token that ends an answer which can only end now.
        """
        # Where the grammar leaves one text only, just the first token of its usual spelling is allowed.
        forced = self._matcher.compute_ff_tokens()
        if token != forced[0] if forced else not 0 <= token < self._tokens:
            return False
        taken = self._matcher.try_consume_tokens([token]) == 1
        self._followed += taken
        return taken

    def allow(self, address: int) -> None:
        """Write which tokens may come next to memory: int32 words with a bit per token of the tokenizer, lowest first.

        Raises:
            GrammarError: a token was taken that is not allowed, or the grammar grew too complex to be followed.
        """
        self._matcher.unsafe_compute_mask_ptr(address, 4 * -(-self._tokens // 32))
        if self._matcher.is_error():
            raise GrammarError(f"the grammar cannot be followed any further: {_reason(self._matcher.get_error())}")

    def begin(self, tokens: Sequence[int]) -> None:
        """Follow, and work out in a thread what `forbidden` is then. Returns at once."""
        self._next = self._pool.submit(self._work, tokens)

    def forbidden(self) -> Tensor:
        """Which tokens must not come next: bool [vocabulary], on the CPU. Waits for what was begun.

        Raises:
            GrammarError: as `allow`.
        """
        assert self._next is not None, "nothing was begun"
        return self._next.result()

    def _work(self, tokens: Sequence[int]) -> Tensor:
        self.follow(tokens)
        bits = np.zeros(-(-self._tokens // 32), dtype=np.int32)
        self.allow(bits.ctypes.data)
        forbidden = np.ones(self._vocab_size, dtype=np.bool_)
        allowed = np.unpackbits(bits.view(np.uint8), count=self._tokens, bitorder="little")
        np.equal(allowed, 0, out=forbidden[: self._tokens])
        return torch.from_numpy(forbidden)


class Grammar:
    """A compiled grammar, for any number of choices."""

    def __init__(self, prototype: LLMatcher, tokens: int, vocab_size: int, pool: ThreadPoolExecutor) -> None:
        """`tokens`: those of the tokenizer; a model's vocabulary beyond them is forbidden."""
        self._prototype = prototype
        self._tokens = tokens
        self._vocab_size = vocab_size
        self._pool = pool

    def guide(self, start: int) -> Guide:
        """The way of one choice, whose answer begins after `start` tokens of its sequence."""
        return Guide(self._prototype.deep_copy(), start, self._tokens, self._vocab_size, self._pool)

    def check(self) -> None:
        """Raise GrammarError where no answer can begin, as of a schema that refers to nothing but itself."""
        bits = np.zeros(-(-self._tokens // 32), dtype=np.int32)
        self.guide(0).allow(bits.ctypes.data)


class Grammars:
    """The grammars of one model's vocabulary. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        """`vocab_size`: of the model, which may be padded beyond its tokenizer's."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._lock = threading.Lock()
        self._vocabulary: LLTokenizer | None = None
        self._kept: OrderedDict[str, Grammar] = OrderedDict()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="grammar")

    def kept(self, text: str) -> Grammar | None:
        """A grammar that was compiled before, if it is still there."""
        with self._lock:
            grammar = self._kept.get(text)
            if grammar is not None:
                self._kept.move_to_end(text)
            return grammar

    def compile(self, text: str) -> Grammar:
        """The grammar; takes milliseconds, or up to a second for a very large one, in which others may run.

        Raises:
            GrammarError: it is not well-formed, asks for what cannot be followed, lets no answer begin, or this
                vocabulary has none.
        """
        grammar = self.kept(text)
        if grammar is not None:
            return grammar
        try:
            from llguidance import LLMatcher
        except ImportError:
            raise GrammarError("answers of a given form need the package llguidance, which is not installed") from None
        matcher = LLMatcher(self._tokens(), text, log_level=0)
        if matcher.is_error():
            raise GrammarError(_reason(matcher.get_error()))
        grammar = Grammar(matcher, self._tokenizer.vocab_size, self._vocab_size, self._pool)
        grammar.check()
        with self._lock:
            self._kept[text] = grammar
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return grammar

    def _tokens(self) -> LLTokenizer:
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = _vocabulary(self._tokenizer)
            return self._vocabulary


_AHEAD, _UNSURE = 2048, 16
"""Characters of a forced text that are spelled at a time, and tokens at their end that are left to the next time."""


class _Spelled:
    """A vocabulary as llguidance asks for it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.eos_token_id = tokenizer.known_eos_ids[0]
        self.bos_token_id = tokenizer.bos_id
        self.special_token_ids = sorted(tokenizer.special_ids)
        self.tokens = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
        self._encode = tokenizer.encode
        self._special = tokenizer.special_ids
        self._before = tokenizer.encode(_BEFORE, add_special_tokens=False)
        self._by_bytes = {spelled: token for token, spelled in enumerate(self.tokens) if token not in self._special}
        self._longest = max(map(len, self._by_bytes), default=0)
        # Asked at every token of what a grammar leaves no choice about, such as the same keys in each of many objects.
        self._spelled = lru_cache(_SPELLED)(self._spell)

    def __call__(self, text: str) -> list[int]:
        if len(text) <= _AHEAD:
            return self._spelled(text)
        # What follows is asked for at the next token; the last ones of a beginning may be others in the whole.
        spelled = self._spelled(text[:_AHEAD])
        return spelled[: max(len(spelled) - _UNSURE, len(spelled) // 2)]

    def _spell(self, text: str) -> list[int]:
        """Tokens whose bytes are the text's, none of them special: the usual ones where those are so."""
        raw, skipped = text.encode(), len(self._before)
        # A tokenizer of SentencePiece's kind begins each text with a space, but none that goes on.
        for usual in (self._usual(text), self._usual(_BEFORE + text)[skipped:]):
            if b"".join(self.tokens[token] for token in usual) == raw and self._special.isdisjoint(usual):
                return usual
        return self._by_longest(raw)

    def _usual(self, text: str) -> list[int]:
        return self._encode(text, add_special_tokens=False)

    def _by_longest(self, raw: bytes) -> list[int]:
        """The longest token that fits, again and again, as far as the vocabulary has the bytes."""
        tokens, at = [], 0
        while at < len(raw):
            ends = range(min(at + self._longest, len(raw)), at, -1)
            end = next((end for end in ends if raw[at:end] in self._by_bytes), None)
            if end is None:
                break
            tokens.append(self._by_bytes[raw[at:end]])
            at = end
        return tokens


def _vocabulary(tokenizer: Tokenizer) -> LLTokenizer:
    from llguidance import LLTokenizer, TokenizerWrapper

    if tokenizer.spelling not in _SPELLINGS or not tokenizer.known_eos_ids:
        raise GrammarError("this model's vocabulary cannot be held to a form")
    try:
        return LLTokenizer(TokenizerWrapper(_Spelled(tokenizer)), eos_token=list(tokenizer.known_eos_ids))
    except ValueError as error:
        raise GrammarError(f"this model's vocabulary cannot be held to a form: {_reason(str(error))}") from error


def _reason(message: str) -> str:
    """The first line of an error: what follows repeats the grammar."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    reason = lines[0] if lines else "it cannot be compiled"
    return _REASONS.get(reason, reason)
