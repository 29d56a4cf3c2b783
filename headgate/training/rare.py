"""Showing a model the tokens that its tokenizer's own training text hardly has.

A byte-pair tokenizer merges the text it is trained on nearly everywhere into longer tokens. What those are made of
comes up again in words and wordings that are new, and a model trained on such text knows nothing of it: a quarter of
the demo's test prompts have such tokens. So made-up words are made of them (`rare_pieces`), and tokens of prompts are
now and then written as two others (`Resplit`), as with Provilkov et al. 2020, "BPE-Dropout: Simple and Effective
Subword Regularization", but with any two that the vocabulary has.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer

from headgate.engine.demo.tasks import generate
from headgate.engine.demo.tokenizer import SPECIALS, conversation_segments
from headgate.training.batches import Encoded, encode

SAMPLES = 6_000
"""Of the training text, to tell rare tokens by."""
RESPLIT = 0.5
"""Share of rows some of whose tokens are written otherwise."""
TOKENS = 0.04
"""Share of the tokens in these."""


def rare_pieces(tokenizer: Tokenizer, *, seed: int = 0) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The rarer half of the tokens that are two letters or more, in lower case, sorted; and those with a capital.

    How rare they are is told by samples of the train split.
    """
    seen: Counter[int] = Counter()
    for sample in generate(SAMPLES, seed=seed):
        seen.update(encode(tokenizer, conversation_segments(sample))[0])
    vocabulary = tokenizer.get_vocab()
    words = [token for token in vocabulary if len(token) > 1 and token.isascii() and token.isalpha()]
    words.sort(key=lambda token: (seen[vocabulary[token]], token))
    rare = words[: len(words) // 2]
    return _lower(token for token in rare if not token.istitle()), _lower(token for token in rare if token.istitle())


def _lower(tokens: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({token.lower() for token in tokens}))


class Resplit:
    """Writes tokens as two others of a vocabulary that say the same."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocabulary = {
            token: number
            for token, number in tokenizer.get_vocab(with_added_tokens=False).items()
            if token not in SPECIALS
        }
        self._pairs = {
            number: [
                (vocabulary[token[:cut]], vocabulary[token[cut:]])
                for cut in range(1, len(token))
                if token[:cut] in vocabulary and token[cut:] in vocabulary
            ]
            for token, number in vocabulary.items()
        }

    def __call__(self, row: Encoded, rng: random.Random) -> Encoded:
        """The row with some tokens of its prompt written otherwise, or as it is. Answers stay as they are."""
        if rng.random() >= RESPLIT:
            return row
        ids: list[int] = []
        answer: list[bool] = []
        for token, learned in zip(*row, strict=True):
            pairs = () if learned else self._pairs.get(token, ())
            written = rng.choice(pairs) if pairs and rng.random() < TOKENS else (token,)
            ids += written
            answer += [learned] * len(written)
        return ids, answer
