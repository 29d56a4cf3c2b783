"""Takes off what does not change a question: greetings, politeness, the frame around it, equivalent openings."""

from __future__ import annotations

from headgate.cache.guards.lexicon import ABOUT_WORDS, ARTICLE_AFTER, ARTICLES, BE, POLITE, WH
from headgate.cache.guards.reading import Token

_REQUEST_VERBS = frozenset(
    {"tell", "give", "show", "explain", "describe", "summarize", "translate", "list", "define", "calculate", "compute"}
    | {"convert", "solve"}
)

_OPENINGS: tuple[tuple[str, ...], ...] = tuple(
    tuple(phrase.split())
    for phrase in (
        "hi there", "hello there", "hey there", "hi", "hello", "hey", "good morning", "ok", "quick question",
        "i have a question", "thanks", "thank you",
    )
)  # fmt: skip
_CLOSINGS: tuple[tuple[str, ...], ...] = tuple(
    tuple(phrase.split())
    for phrase in ("thank you very much", "thanks a_lot", "thanks in advance", "thank you", "thanks")
)
_BEFORE_REQUEST: tuple[tuple[str, ...], ...] = tuple(
    tuple(phrase.split()) for phrase in ("can you", "could you", "would you", "will you", "i want you to")
)
_BEFORE_QUESTION: tuple[tuple[str, ...], ...] = tuple(
    tuple(phrase.split())
    for phrase in (
        "tell me", "let me know", "do you know", "i would like to know", "i want to know", "i need to know",
        "i am wondering", "i was wondering", "i wonder",
    )
)  # fmt: skip
_HOW: tuple[tuple[str, ...], ...] = tuple(
    tuple(phrase.split()) for phrase in ("how to", "how do i", "how can i", "how does one", "how can one")
)
_NOT_A_METHOD = frozenset({"look", "feel", "seem", "sound", "appear", "smell", "compare", "rank", "rate", "differ"})
"""With these verbs "how do I ..." does not ask for a way to do it."""


def core(tokens: list[Token]) -> list[Token]:
    """The tokens that ask, in one order and one form.

    Only rewritings that keep the meaning in every context we know of are here: a rewriting too few costs a hit, a
    rewriting too many costs a wrong answer.
    """
    if not any(token.form in ABOUT_WORDS for token in tokens):
        tokens = _without_courtesy(tokens)
    tokens = _without_frame(tokens)
    tokens = _possessives(tokens)
    return _openings(tokens)


def signature(tokens: list[Token]) -> list[str]:
    """Forms of the core that must be equal in order: articles left out where they are harmless, `is` and `are` too.

    Where the verb stands depends on the frame ("what is X", "tell me what X is"), so it is counted by `verbs`.
    """
    said = [token for token in tokens if token.kind != "word" or token.form not in ARTICLES]
    nouns = sum(token.kind != "word" or token.form not in BE | WH for token in said)
    kept = []
    for at, token in enumerate(tokens):
        if token.kind == "word" and token.form in BE:
            continue
        # "What is the matter" and "what is matter" differ: with one noun the article is all there is.
        if token.kind == "word" and token.form in ARTICLES and nouns > 1 and _is_article(tokens, at):
            continue
        kept.append(f"{token.kind[0]}:{token.form}")
    return kept


def verbs(tokens: list[Token]) -> list[str]:
    """The forms of `to be` that the signature leaves out, sorted."""
    return sorted(token.form for token in tokens if token.kind == "word" and token.form in BE)


def _is_article(tokens: list[Token], at: int) -> bool:
    if at + 1 == len(tokens) or tokens[at + 1].kind not in ("word", "number", "date"):
        return False
    if tokens[at].form == "the" or at == 0:
        return True
    return tokens[at - 1].kind == "word" and tokens[at - 1].form in ARTICLE_AFTER


def _starts(tokens: list[Token], phrases: tuple[tuple[str, ...], ...]) -> int:
    """Length of the first phrase that the tokens begin with; 0 without one."""
    for phrase in phrases:
        if len(tokens) > len(phrase) and all(
            token.kind == "word" and token.form == form for token, form in zip(tokens, phrase, strict=False)
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


def _without_frame(tokens: list[Token]) -> list[Token]:
    taken = _starts(tokens, _BEFORE_REQUEST)
    if taken and _word(tokens, taken) in _REQUEST_VERBS:
        tokens = tokens[taken:]
    taken = _starts(tokens, _BEFORE_QUESTION)
    if taken and _word(tokens, taken) in WH:
        tokens = tokens[taken:]
    if _word(tokens, 0) in ("tell", "give") and _word(tokens, 1) == "me" and _word(tokens, 2) == "the":
        # "Tell me the capital of France"; "tell me a joke" is another matter.
        tokens = [Token("word", "what"), Token("word", "is"), *tokens[2:]]
    return tokens


def _possessives(tokens: list[Token]) -> list[Token]:
    """`France's capital` → `capital of France`, for one word on either side."""
    out = list(tokens)
    for at in range(1, len(out) - 1):
        last = at + 2 == len(out) or _word(out, at + 2) in BE
        if _word(out, at) == "'s" and last and out[at - 1].kind == "word" and out[at + 1].kind == "word":
            out[at - 1 : at + 2] = [out[at + 1], Token("word", "of"), out[at - 1]]
    return out


def _openings(tokens: list[Token]) -> list[Token]:
    taken = _starts(tokens, _HOW)
    if taken and _word(tokens, taken) not in _NOT_A_METHOD:
        return [tokens[0], *tokens[taken:]]
    if _word(tokens, 0) == "what" and _word(tokens, 1) == "does" and _word(tokens, len(tokens) - 1) == "mean":
        meaning = ("what", "is", "the", "meaning", "of")
        return [*(Token("word", form) for form in meaning), *tokens[2:-1]]
    if _word(tokens, 0) == "how" and _word(tokens, 1) == "does" and _word(tokens, len(tokens) - 1) == "work":
        return [tokens[0], *tokens[2:-1], Token("word", "works")]
    return tokens
