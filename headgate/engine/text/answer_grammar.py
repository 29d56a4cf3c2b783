"""The form of an answer as a grammar: JSON by a schema, and calls of functions as the model writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headgate.engine.text.tagged_grammar import tagged_arguments
from headgate.engine.text.tool_calls import CallFormat
from headgate.engine.text.written import Schema, json_value, literal


@dataclass(frozen=True, slots=True)
class CallForm:
    """Calls that an answer has or may have.

    Attributes:
        fmt: how the model writes them.
        functions: JSON schemas of the arguments, by function.
        required: whether there must be one.
        several: whether there may be more than one.
    """

    fmt: CallFormat
    functions: Mapping[str, Schema]
    required: bool
    several: bool


@dataclass(frozen=True, slots=True)
class _Frame:
    """What stands around calls: `open` before the first, `close` after the last, `head` and `tail` around arguments."""

    open: str
    head: str
    tail: str
    between: str
    close: str


_FRAMES: Mapping[CallFormat, _Frame] = {
    "hermes": _Frame("", '<tool_call>\n{"name": "%s", "arguments": ', "}\n</tool_call>", "\n", ""),
    "llama3": _Frame("", '{"name": "%s", "parameters": ', "}", "; ", ""),
    "mistral": _Frame("[TOOL_CALLS][", '{"name": "%s", "arguments": ', "}", ", ", "]"),
    "deepseek": _Frame(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>%s<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "",
        "<｜tool▁calls▁end｜>",
    ),
    "deepseek-v3": _Frame(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>%s\n```json\n",
        "\n```<｜tool▁call▁end｜>",
        "\n",
        "<｜tool▁calls▁end｜>",
    ),
    "qwen3-coder": _Frame("", "<tool_call>\n<function=%s>\n", "</function>\n</tool_call>", "\n", ""),
}
_MARKS: Mapping[CallFormat, Mapping[str, str]] = {
    "hermes": {"<tool_call>": ""},
    "llama3": {"<|python_tag|>": ""},
    "mistral": {"[TOOL_CALLS]": ""},
    "deepseek": {"<｜tool▁calls▁begin｜>": ""},
    "deepseek-v3": {"<｜tool▁calls▁begin｜>": ""},
    "qwen3-coder": {"<tool_call>": "\n<function=", "<function=": ""},
}
"""What text that is no call does not contain, as `ToolCallReader` reads it; with what comes between a mark and the
place to which all of a format's lead."""
_TEXT = r"/(.|\n)*/"
_TEXTS: Mapping[CallFormat, str] = {"llama3": r"/[\s\x1c-\x1f]*([^{\s\x1c-\x1f](.|\n)*)?/"}
"""Where a brace at the beginning is a call's without any mark."""


def json_grammar(schema: Schema) -> str:
    """A grammar of the JSON values of a schema."""
    return f"start: value\nvalue: %json {json_value(schema)}\n"


def arguments_grammar(fmt: CallFormat, schema: Schema) -> str:
    """A grammar of a call's arguments alone, as the model writes them.

    Raises:
        FormError: it writes them in a way that cannot be held to this schema.
    """
    return "\n".join([*_arguments("start", fmt, schema), ""])


def any_text() -> str:
    """A grammar of all texts but those that think."""
    return "start: TEXT\nTEXT: /(.|\\n)*/ & ~/\\s*<think>(.|\\n)*/\n"


def after_thinking(grammar: str, *, opened: bool, most: int | None = None) -> str:
    """The same for a model that may think before its answer.

    Args:
        grammar: of the answer.
        opened: the prompt ended with the mark of thinking.
        most: tokens of thinking at most, its marks included; then it is ended. None: it ends by itself.
    """
    thought = "thought BREAK answer" if opened else '("<think>" thought BREAK)? answer'
    rules = [grammar.replace("start:", "answer:", 1), f"start: {thought}", r"BREAK: /\s{0,2}/"]
    if most is None:
        rules += [r"TEXT_OF_THOUGHT: /(.|\n)*/", 'thought[lazy]: TEXT_OF_THOUGHT "</think>"']
    else:
        free = max(0, most - (1 if opened else 2))
        # A mark begins as other text may: what is read of it is text of its own until it is whole.
        rules += [
            'thought: thoughts "</think>"',
            f"thoughts[max_tokens={free}]: (PLAIN | LIKE_THE_MARK)*" if free else 'thoughts: ""',
            "PLAIN: /[^<]+/",
            r"LIKE_THE_MARK: /<(\/(t(h(i(n(k)?)?)?)?)?)?/",
        ]
    return "\n".join([*rules, ""])


def answer_grammar(schema: Schema | None, calls: CallForm | None) -> str | None:
    """The grammar of an answer that is JSON by the schema, or calls, or where calls are optional text; None: any text.

    Of models whose answers are one text: `harmony_grammar` is for the others.

    Raises:
        FormError: a function's arguments are written in a way that cannot be held to their schema.
    """
    if calls is None:
        return None if schema is None else json_grammar(schema)
    frame = _FRAMES[calls.fmt]
    if calls.required:
        return _rules("calls", calls, frame)
    if schema is not None:
        return _rules("calls | value", calls, frame, f"value: %json {json_value(schema)}")
    # Text goes on until a mark comes; what follows the mark is a call.
    marks = _MARKS[calls.fmt]
    text = [
        f"TEXT: {_TEXTS.get(calls.fmt, _TEXT)}",
        *(f"mark_{at}[lazy]: TEXT {literal(mark)}" for at, mark in enumerate(marks)),
        "marked: " + " | ".join(f"mark_{at} {literal(more)}" for at, more in enumerate(marks.values())),
    ]
    passed = next(mark + more for mark, more in marks.items())
    rest = replace(frame, open=frame.open.removeprefix(passed), head=frame.head.removeprefix(passed))
    if calls.fmt in _TEXTS:
        return _rules("calls | marked calls | TEXT", calls, rest, *text)
    if frame.open or not calls.several:
        return _rules("marked calls | TEXT", calls, rest, *text)
    return _rules("(marked calls)* TEXT", replace(calls, several=False), rest, *text)


def _rules(start: str, calls: CallForm, frame: _Frame, *others: str) -> str:
    more = f"({literal(frame.between)} call)*" if calls.several else ""
    rules = [
        "%llguidance {}",
        f"start: {start}",
        f"calls: {literal(frame.open)} call {more} {literal(frame.close)}",
        f"call: {' | '.join(f'call_{at}' for at in range(len(calls.functions)))}",
        *others,
    ]
    for at, (name, arguments) in enumerate(calls.functions.items()):
        rules.append(f"call_{at}: {literal(frame.head % name)} arguments_{at} {literal(frame.tail)}")
        rules.extend(_arguments(f"arguments_{at}", calls.fmt, arguments))
    return "\n".join(rules) + "\n"


def _arguments(rule: str, fmt: CallFormat, schema: Schema) -> Iterable[str]:
    return tagged_arguments(rule, schema) if fmt == "qwen3-coder" else (f"{rule}: %json {json_value(schema)}",)
