"""Takes off what does not change a question: greetings and politeness."""

from __future__ import annotations

from headgate.cache.guards.lexicon import ABOUT_WORDS, BE, POLITE
from headgate.cache.guards.reading import Token

_OPENINGS: tuple[tuple[str, ...], ...] = tuple(
    tuple(phrase.split())
    for phrase in (
        "hi there", "hello there", "hey there", "hi", "hello", "hey", "good morning", "ok", "quick question",
        "i have a question", "thanks", "thank you", "sorry to bother you",
    )
)  # fmt: skip
_CLOSINGS: tuple[tuple[str, ...], ...] = tuple(
    tuple(phrase.split())
    for phrase in ("thank you very much", "thanks a_lot", "thanks in advance", "thank you", "thanks", "thx")
)


def core(tokens: list[Token]) -> list[Token]:
    """The tokens that ask."""
    if any(token.form in ABOUT_WORDS for token in tokens):
        tokens = _without_salutation(tokens)
    else:
        tokens = _without_courtesy(tokens)
    return _possessives(tokens)


def _starts(tokens: list[Token], phrases: tuple[tuple[str, ...], ...]) -> int:
    """Length of the first phrase that the tokens begin with; 0 without one."""
    first = tokens[0].form if tokens else ""
    for phrase in phrases:
        if (
            phrase[0] == first
            and len(tokens) > len(phrase)
            and all(token.kind == "word" and token.form == form for token, form in zip(tokens, phrase, strict=False))
        ):
            return len(phrase)
    return 0


def _word(tokens: list[Token], at: int) -> str:
    return tokens[at].form if at < len(tokens) and tokens[at].kind == "word" else ""


def _without_courtesy(tokens: list[Token]) -> list[Token]:
    """Greetings, thanks and `please` taken off, unless nothing would be left."""
    whole = tokens
    tokens = [token for token in tokens if token.kind != "word" or token.form not in POLITE]
    while taken := _starts(tokens, _OPENINGS):
        tokens = tokens[taken:]
    for closing in _CLOSINGS:
        if len(tokens) > len(closing) and tuple(token.form for token in tokens[-len(closing) :]) == closing:
            tokens = tokens[: -len(closing)]
    return tokens or whole


_SAYING = frozenset(
    {"in", "into", "is", "means", "mean", "to", "from", "and", "or", "as", "vs", "translation", "meaning"}
)
_LONG = 5


def _without_salutation(tokens: list[Token]) -> list[Token]:
    """A greeting at the head of a longer text, and thanks in a sentence of their own; `hello in French` stays."""
    taken = _starts(tokens, _OPENINGS)
    if taken and len(tokens) - taken >= _LONG and tokens[taken].form not in _SAYING:
        tokens = tokens[taken:]
    for closing in _CLOSINGS:
        start = len(tokens) - len(closing)
        if start >= _LONG and tokens[start].opens and tuple(token.form for token in tokens[start:]) == closing:
            return tokens[:start]
    return tokens


def _possessives(tokens: list[Token]) -> list[Token]:
    """`France's capital` → `capital of France`, for one word on either side."""
    if not any(token.form == "'s" for token in tokens):
        return tokens
    out = list(tokens)
    for at in range(1, len(out) - 1):
        last = at + 2 == len(out) or _word(out, at + 2) in BE
        if _word(out, at) == "'s" and last and out[at - 1].kind == "word" and out[at + 1].kind == "word":
            out[at - 1 : at + 2] = [out[at + 1], Token("word", "of"), out[at - 1]]
    return out
