"""Grammars: which tokens may come next in an answer of a given form.

A grammar is compiled once, off the event loop, and kept. Each choice walks through its own copy in a thread beside the
step thread: as soon as a token is known, the tokens that may follow it are worked out, while the device computes their
logits. Grammars are llguidance's: Lark with JSON schemas in it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headgate.engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_KEPT = 128
"""Compiled grammars of a model that are kept, the last used ones."""
_SPELLINGS = ("byte-level", "byte-fallback", "metaspace")


class GrammarError(ValueError):
    """A grammar that cannot be followed. The message is for the caller of the API."""


class Guide:
    """One choice's way through its grammar."""

    def __init__(self, matcher: LLMatcher, tokens: int, vocab_size: int, pool: ThreadPoolExecutor) -> None:
        self._matcher = matcher
        self._bits = np.zeros(-(-tokens // 32), dtype=np.int32)
        # Written again only after a token was chosen by it: whoever reads it has done so.
        self._forbidden = np.ones(vocab_size, dtype=np.bool_)
        self._known = self._forbidden[:tokens]
        self._tensor = torch.from_numpy(self._forbidden)
        self._pool = pool
        self._next: Future[Tensor] = pool.submit(self._step, ())

    def advance(self, tokens: Sequence[int]) -> None:
        """These tokens were chosen. Returns at once."""
        self._next = self._pool.submit(self._step, tokens)

    def forbidden(self) -> Tensor:
        """Which tokens must not come next: bool [vocabulary], on the CPU, until the next `advance`.

        Waits for what is still being worked out.

        Raises:
            GrammarError: a token was chosen that was forbidden, or the grammar grew too complex to be followed.
        """
        return self._next.result()

    def _step(self, tokens: Sequence[int]) -> Tensor:
        matcher, bits = self._matcher, self._bits
        for token in tokens:
            matcher.consume_token(token)
        matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        if matcher.is_error():
            raise GrammarError(f"the grammar cannot be followed any further: {matcher.get_error()}")
        allowed = np.unpackbits(bits.view(np.uint8), count=len(self._known), bitorder="little")
        np.equal(allowed, 0, out=self._known)
        return self._tensor


class Grammar:
    """A compiled grammar, for any number of choices."""

    def __init__(self, prototype: LLMatcher, tokens: int, vocab_size: int, pool: ThreadPoolExecutor) -> None:
        """`tokens`: those of the tokenizer; a model's vocabulary beyond them is forbidden."""
        self._prototype = prototype
        self._tokens = tokens
        self._vocab_size = vocab_size
        self._pool = pool

    def guide(self) -> Guide:
        """The way of one choice, from the beginning."""
        return Guide(self._prototype.deep_copy(), self._tokens, self._vocab_size, self._pool)


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
            GrammarError: it is not well-formed, asks for what cannot be followed, or this vocabulary has none.
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


class _Spelled:
    """A vocabulary as llguidance asks for it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = tokenizer.eos_ids[0]
        self.bos_token_id = tokenizer.bos_id
        self.special_token_ids = sorted(tokenizer.special_ids)
        self.tokens = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)


def _vocabulary(tokenizer: Tokenizer) -> LLTokenizer:
    from llguidance import LLTokenizer, TokenizerWrapper

    if tokenizer.spelling not in _SPELLINGS or not tokenizer.eos_ids:
        raise GrammarError("this model's vocabulary cannot be held to a form")
    return LLTokenizer(TokenizerWrapper(_Spelled(tokenizer)), eos_token=list(tokenizer.eos_ids))


def _reason(message: str) -> str:
    """The first line of an error: what follows repeats the grammar."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[0] if lines else "it cannot be compiled"
