"""Calls of functions in a model's answer, for the ways in which models write them.

The answer comes in pieces of any size; what is read from it does not depend on how it is cut. Text that looks like a
call and is none, because it names a function that was not given or is not well-formed before its arguments begin, stays
text. White space around calls is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.json_call import Call, NamedCall, ObjectCall
from headgate.engine.text.xml_call import TaggedCall

ToolFormat = Literal["hermes", "llama3", "mistral", "qwen3-coder", "deepseek", "deepseek-v3"]
TOOL_FORMATS: tuple[ToolFormat, ...] = get_args(ToolFormat)
CallFormat = ToolFormat | Literal["harmony"]
"""Those, which stand in text, and the one of messages of their own."""
Schemas = Mapping[str, Mapping[str, Any]]
"""JSON schemas of the arguments, by function."""


@dataclass(frozen=True, slots=True)
class CallPiece:
    """What was added to a call: its name with the first piece and only there, its arguments' JSON bit by bit."""

    index: int
    name: str | None
    arguments: str


@dataclass(frozen=True, slots=True)
class Said:
    """What a part of an answer says: what was thought, text, and pieces of calls."""

    text: str = ""
    calls: tuple[CallPiece, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class _Layout:
    """How calls stand in an answer.

    Attributes:
        open: what comes before a call, or before the first of several.
        read: begins to read a call, told whether `lead` was there.
        lead: what may stand between `open` and the first call.
        between: marks that stand between two calls that share one `open`, with any white space around each.
        close: marks that come after the last of them; models leave out the later ones.
        bare: whether the answer may be a call without `open`.
        start: what a call without `open` begins with anywhere in the answer; a part of the call.
    """

    open: str
    read: Callable[[Schemas, bool], Call]
    lead: str = ""
    between: tuple[str, ...] = ()
    close: tuple[str, ...] = ()
    bare: bool = False
    start: str = ""


def _object(schemas: Schemas, _led: bool) -> Call:
    return ObjectCall(schemas.keys())


def _mistral(schemas: Schemas, led: bool) -> Call:
    heads = (r"(?P<name>.*?)(\[CALL_ID\]\w*)?(\[ARGS\])?",)
    return ObjectCall(schemas.keys()) if led else NamedCall(schemas.keys(), heads)


def _deepseek(schemas: Schemas, _led: bool) -> Call:
    # Checkpoints of one kind were made from those of the other, and write now this, now that.
    heads = (r"function<｜tool▁sep｜>(?P<name>[^`]*)(```(json)?)?", r"(?P<name>.*?)(<｜tool▁sep｜>)?\s*(```(json)?)?")
    return NamedCall(schemas.keys(), heads, fence=True)


def _tagged(schemas: Schemas, _led: bool) -> Call:
    return TaggedCall(schemas)


_DEEPSEEK = _Layout(
    "<｜tool▁calls▁begin｜>",
    _deepseek,
    lead="<｜tool▁call▁begin｜>",
    between=("<｜tool▁call▁end｜>", "<｜tool▁call▁begin｜>"),
    close=("<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
)
_LAYOUTS: Mapping[ToolFormat, _Layout] = {
    "hermes": _Layout("<tool_call>", _object, close=("</tool_call>",)),
    "llama3": _Layout("<|python_tag|>", _object, between=(";",), bare=True),
    "mistral": _Layout("[TOOL_CALLS]", _mistral, lead="[", between=(",",), close=("]",)),
    "qwen3-coder": _Layout("<tool_call>", _tagged, close=("</tool_call>",), start="<function="),
    "deepseek": _DEEPSEEK,
    "deepseek-v3": _DEEPSEEK,
}
MARKS = frozenset(
    {
        *("<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
        *("<｜tool▁sep｜>", "<think>", "</think>"),
    }
)
"""Texts that are special tokens of some vocabularies, which have to be seen in an answer all the same."""


def tool_format(
    template: ChatTemplate, asked: ToolFormat | Literal["auto"] = "auto", *, harmony: bool = False
) -> CallFormat | None:
    """How a model writes calls: as asked, or as its chat template teaches it. `harmony`: all that it writes is that.

    None where the template tells the model of no functions, or teaches what is not known here.
    """
    if not template.reads("tools", with_tools=True):
        return None
    if harmony:
        return "harmony"
    if asked != "auto":
        return asked
    source = template.source(with_tools=True)
    if "<｜tool▁sep｜>" in source:
        return "deepseek-v3" if "```json" in source else "deepseek"
    if "[TOOL_CALLS]" in source:
        return "mistral"
    if "<tool_call>" in source:
        return "qwen3-coder" if "<function=" in source else "hermes"
    if "<|python_tag|>" in source or ("<|start_header_id|>" in source and '"parameters"' in source):
        return "llama3"
    return None


class ToolCallReader:
    """Tells the calls in one choice's text from the rest of it."""

    def __init__(self, fmt: ToolFormat, tools: Sequence[Mapping[str, Any]], *, most: int | None = None) -> None:
        """Read an answer.

        Args:
            fmt: how the model writes calls.
            tools: the functions it may call, as OpenAI's tool definitions.
            most: after so many calls everything is dropped.
        """
        self._layout = _LAYOUTS[fmt]
        self._schemas = {f["name"]: f.get("parameters") or {} for f in (tool["function"] for tool in tools)}
        self._most = most
        self._buffer = ""
        self._mark = ""
        self._raw: list[str] = []
        self._call: Call | None = None
        self._read = self._first if self._layout.bare else self._text
        self._said: list[str] = []
        self._pieces: list[CallPiece] = []
        self._trimming = False
        """Whether a call has ended and no text has come since."""
        self.calls = 0
        """Calls that were told of."""

    @property
    def full(self) -> bool:
        """Whether as many calls as there may be have come to their end."""
        return self._most is not None and self.calls >= self._most and self._call is None

    def push(self, text: str) -> Said:
        """Take in text."""
        self._buffer += text
        while self._buffer and self._read():
            pass
        return self._told()

    def finish(self) -> Said:
        """What was held back, when no more text will come."""
        if self._read != self._after and (self._call is None or self._call.name is None):
            self._say(self._mark + "".join(self._raw) + self._buffer)
        self._buffer, self._call = "", None
        return self._told()

    def _told(self) -> Said:
        said = Said("".join(self._said), tuple(self._pieces))
        self._said, self._pieces = [], []
        return said

    def _say(self, text: str) -> None:
        if self._trimming:
            text = text.lstrip()
        if text:
            self._said.append(text)
            self._trimming = False

    def _first(self) -> bool:
        """The beginning of an answer that may be a call without a mark before it."""
        text = self._buffer.lstrip()
        if not text:
            return False
        if text[0] == "{":
            self._begin(led=False)
        else:
            self._read = self._text
        return True

    def _text(self) -> bool:
        """Text up to the next call."""
        text, marks = self._buffer, [mark for mark in (self._layout.open, self._layout.start) if mark]
        begins, mark = min(((text.find(mark), mark) for mark in marks if mark in text), default=(-1, ""))
        # Without a mark the text ends where one may begin.
        before = text[:begins] if mark else text[: len(text) - max(overlap(text, mark) for mark in marks)]
        shown = before.rstrip()
        self._say(shown)
        if not mark:
            self._buffer = text[len(shown) :]
            return False
        # White space before what turns out to be no call is text again.
        self._mark, self._buffer = before[len(shown) :] + mark, text[begins + len(mark) :]
        if mark == self._layout.open:
            self._read = self._lead
        else:
            self._begin(led=False).push(mark)
        return True

    def _lead(self) -> bool:
        """What stands between the mark and the call."""
        lead = self._layout.lead
        ready, led = self._passed((lead,) if lead else ())
        if ready:
            self._begin(led=led)
        return ready

    def _begin(self, *, led: bool) -> Call:
        self._call = call = self._layout.read(self._schemas, led)
        self._raw, self._read = [], self._inside
        return call

    def _inside(self) -> bool:
        """The call itself."""
        call, text = self._call, self._buffer
        assert call is not None
        known = call.name is not None
        self._buffer = call.push(text)
        if call.failed:
            mark, self._buffer = self._mark, "".join(self._raw) + text
            self._forget(self._text)
            self._say(mark)
            return True
        if call.name is None:
            self._raw.append(text)
        else:
            self._tell(call.name, call.take(), first=not known)
        if not call.done:
            return False
        self._trimming = True
        self._forget(self._after)
        return True

    def _tell(self, name: str, arguments: str, *, first: bool) -> None:
        if first:
            self.calls += 1
            self._raw.clear()
        if first or arguments:
            self._pieces.append(CallPiece(self.calls - 1, name if first else None, arguments))

    def _forget(self, read: Callable[[], bool]) -> None:
        """The call has ended, one way or the other."""
        self._call, self._mark, self._raw = None, "", []
        self._read = self._drop if self.full else read

    def _after(self) -> bool:
        """What stands after a call: another one, the end of them, or text where the model forgot it."""
        ready, more = self._passed(self._layout.between)
        if ready and more:
            self._begin(led=True)
            return True
        for marks in range(len(self._layout.close), 0, -1):
            if ready and not more:
                ready, more = self._passed(self._layout.close[:marks])
        if ready:
            self._mark, self._read = "", self._text
        return ready

    def _passed(self, marks: Sequence[str]) -> tuple[bool, bool]:
        """Whether it is known if marks come next, with white space around, and whether they do; then they are passed.

        Of no marks it is known once there is something else than white space.
        """
        rest = self._buffer.lstrip()
        if not marks:
            return bool(rest), False
        for mark in marks:
            text = rest.lstrip()
            if not text.startswith(mark):
                return not mark.startswith(text), False
            rest = text[len(mark) :]
        self._mark += self._buffer[: len(self._buffer) - len(rest)]
        self._buffer = rest
        return True, True

    def _drop(self) -> bool:
        self._buffer = ""
        return False


def overlap(text: str, mark: str) -> int:
    """Length of the longest ending of `text` that is a beginning of `mark`, but not all of it."""
    return next((n for n in range(min(len(text), len(mark) - 1), 0, -1) if text.endswith(mark[:n])), 0)
