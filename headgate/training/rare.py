"""Showing a model the tokens that its tokenizer's own training text hardly has.

A byte-pair tokenizer merges the text it is trained on nearly everywhere into longer tokens. What those are made of
comes up again in words and wordings that are new, and a model trained on such text knows nothing of it: a quarter of
the demo's test prompts have such tokens. So some of the made-up words are made of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer

from headgate.engine.demo.tasks import generate
from headgate.engine.demo.tokenizer import conversation_segments
from headgate.training.batches import encode

SAMPLES = 6_000
"""Of the training text, to tell rare tokens by."""


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
