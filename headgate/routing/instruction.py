"""What a prompt asks, apart from the material it is asked about."""

from __future__ import annotations

import re

_FENCE = re.compile(r"```.*?(?:```|\Z)|\"\"\".*?(?:\"\"\"|\Z)", re.DOTALL)
_QUOTE = re.compile(r"[\"“„«”「]([^\"“”„«»」\n]{12,})[\"”“»」]|(?<=\s)'([^'\n]{16,})'(?=\W|$)")
_COLON = re.compile(r"[::](?=\s)")
_PARAGRAPHS = re.compile(r"\n\s*(?:\n|[-=*_]{3,}\s*\n)+|\n[-=*_]{3,}\s*\Z")
_SENTENCES = re.compile(r"(?<=[.!?。！？])\s+")
_SHORT_WORDS = 45
_FIRST_WORDS = 24
_LAST_WORDS = 20
_MOST_CHARS = 4000


def instruction(text: str) -> str:
    """The words of a prompt that say what to do: without code blocks, quotations and the bulk of pasted material.

    Of a long text the first and the last paragraph are looked at, for that is where people ask; what follows a colon
    is taken for material. Where nothing else would remain the text itself is given back, shortened.
    """
    if len(text) > _MOST_CHARS:
        text = f"{text[: _MOST_CHARS // 2]}\n\n{text[-_MOST_CHARS // 2 :]}"
    bare = _QUOTE.sub(" ", _FENCE.sub("\n\n", text)).strip()
    parts = [part.strip() for part in _PARAGRAPHS.split(bare) if part.strip()]
    if len(parts) == 1 and len(bare.split()) > _SHORT_WORDS:
        parts = [line.strip() for line in bare.splitlines() if line.strip()]
    if len(parts) == 1 and len(bare.split()) > _SHORT_WORDS:
        parts = [part.strip() for part in _SENTENCES.split(bare) if part.strip()]
    ends = parts[:1] + parts[1:][-1:]
    # Of a question and its material the shorter one is the question.
    short = [part for part in ends if len(part.split()) <= _SHORT_WORDS] or ends
    asked = " ".join(_before_colon(_ends_of(part)) for part in short)
    if len(asked.split()) < 2 and len(asked) < 8:
        return _ends_of(text)
    return asked


def _ends_of(paragraph: str) -> str:
    """A paragraph that is short, or the beginning and the end of a long one."""
    words = paragraph.split()
    if len(words) <= _SHORT_WORDS:
        return paragraph
    return " ".join([*words[:_FIRST_WORDS], "\n", *words[-_LAST_WORDS:]])


def _before_colon(paragraph: str) -> str:
    found = _COLON.search(paragraph)
    if found is None:
        return paragraph
    before, after = paragraph[: found.end()], paragraph[found.end() :]
    if len(before.split()) < 2 or len(after.split()) < 3:
        return paragraph
    # Who asks at the end has put the material first.
    sentences = _SENTENCES.split(after.strip())
    return f"{before} {sentences[-1]}" if sentences[-1].rstrip().endswith(("?", "？")) else before
