"""Harmony, the format of gpt-oss: an answer is messages, each with a header that says what it is and whom it is for.

`<|channel|>analysis<|message|>THOUGHTS<|end|><|start|>assistant<|channel|>final<|message|>ANSWER<|return|>`; a call is
a message `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>`, its recipient before the
channel or behind it. OpenAI's cookbook describes it ("OpenAI Harmony Response Format").
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from headgate.engine.text.chat_template import ChatTemplate
    from headgate.engine.text.tokenizer import Tokenizer

START, END, MESSAGE, CHANNEL, CONSTRAIN = "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"
MARKS = (START, END, MESSAGE, CHANNEL, CONSTRAIN)
"""Special tokens in an answer."""
CALL = "<|call|>"
ENDS = ("<|return|>", CALL)
"""Special tokens that end one."""
OPENED = f"{CHANNEL}analysis{MESSAGE}"
"""What a prompt ends with whose answer begins with thoughts, where the template says so."""
APART = "\ufdd0"
"""Stands before each mark in a text that is read, so that marks which are only talked about stay text. No character."""

Kind = Literal["thought", "text", "call"]
_CHANNELS = ("analysis", "commentary", "final")
_NAMED = re.compile(f"{APART}{re.escape(CHANNEL)}(?:[^\\w{APART}]*({'|'.join(_CHANNELS)}))?")
_ANY_MARK = re.compile(f"{APART}({'|'.join(map(re.escape, MARKS))})")
_RECIPIENT = re.compile(rf"\bto=([^\s{APART}]+)")
_NOBODY = ("assistant", "user")
"""Recipients that say nothing."""
_ROLE = "assistant"


def writes_harmony(source: str) -> bool:
    """Whether a chat template is one of harmony."""
    return CHANNEL in source and MESSAGE in source


def speaks_harmony(template: ChatTemplate, tokenizer: Tokenizer) -> bool:
    """Whether a model answers in harmony: its chat template does, and each mark is one special token."""
    special = all(tokenizer.token(mark) in tokenizer.special_ids for mark in (*MARKS, *ENDS))
    # Of other spellings marks could not be told from their letters.
    return writes_harmony(template.source(with_tools=False)) and special and tokenizer.spelling == "byte-level"


@dataclass(frozen=True, slots=True)
class Header:
    """What a message is.

    Attributes:
        kind: what its body is.
        function: the one that is called; empty for other kinds.
        recipient: as text before the body, of a message to somebody who is not there; mostly empty.
    """

    kind: Kind
    function: str = ""
    recipient: str = ""


def header(text: str, functions: Collection[str]) -> Header:
    """Reads a header, with marks as they are shown, of an answer that may call these functions."""
    to = _RECIPIENT.search(text)
    recipient = "" if to is None or to[1] in _NOBODY else to[1]
    name = recipient.removeprefix("functions.")
    if name in functions:
        return Header("call", name, f"to={recipient} ")
    return Header(
        "thought" if _channel(text) == "analysis" else "text", recipient=f"to={recipient} " if recipient else ""
    )


@dataclass(frozen=True, slots=True)
class Stray:
    """What stands where a header should and is none. `kind` is None where nothing says what it is."""

    kind: Literal["thought", "text"] | None
    text: str


def stray(text: str, *, cut: bool) -> Stray:
    """Reads a header that no message follows. `cut`: it was the last, and may be half of one."""
    channel = _channel(text)
    rest = _ANY_MARK.sub(" ", _NAMED.sub(" ", text)).strip()
    if cut and APART + CHANNEL in text and any(name.startswith(rest) for name in _CHANNELS):
        rest = ""
    return Stray("thought" if channel == "analysis" else "text" if channel == "final" else None, rest)


def untitled(text: str, *, cut: bool) -> str:
    """A header that follows `<|start|>` without the role in it. `cut`: as `stray`."""
    return "" if cut and _ROLE.startswith(text) else text.removeprefix(_ROLE)


def _channel(text: str) -> str:
    names = [name for name in _NAMED.findall(text) if name]
    return names[-1] if names else ""
