"""Calls of functions in answers, however these are cut into pieces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from headgate.engine.demo import checkpoint
from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.folder import TokenizerFolder
from headgate.engine.text.stream import ChoiceText
from headgate.engine.text.tokenizer import Tokenizer as ModelTokenizer
from headgate.engine.text.tool_calls import MARKS, TOOL_FORMATS, ToolCallReader, ToolFormat, tool_format


def wrapped(backend: Tokenizer) -> ModelTokenizer:
    return ModelTokenizer(backend, TokenizerFolder({}, (), (), {}))


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


TOOLS = [tool("find", text={"type": "string"}, most={"type": "integer"}), tool("stop"), tool("finder")]


def read(fmt: ToolFormat, pieces: Sequence[str], most: int | None = None) -> tuple[str, list[tuple[str, str]]]:
    """The text and the calls (name, arguments), checked for what holds of every stream."""
    reader = ToolCallReader(fmt, TOOLS, most=most)
    said = [*(reader.push(piece) for piece in pieces), reader.finish()]
    calls: list[tuple[str, str]] = []
    for piece in (piece for one in said for piece in one.calls):
        if piece.name is not None:
            assert piece.index == len(calls), "a call begins after the one before it"
            calls.append((piece.name, ""))
        assert piece.index == len(calls) - 1
        calls[-1] = (calls[-1][0], calls[-1][1] + piece.arguments)
    return "".join(one.text for one in said), calls


ARGUMENTS = '{"text": "a } \\" ] </tool_call> é", "most": [1, {"x": null}]}'
CALL = f'{{"name": "find", "arguments": {ARGUMENTS}}}'
FIND = ("find", ARGUMENTS)


@pytest.mark.parametrize(
    ("fmt", "answer", "text", "calls"),
    [
        ("hermes", f"<tool_call>\n{CALL}\n</tool_call>", "", [FIND]),
        ("hermes", f"Let me see.\n\n<tool_call>\n{CALL}\n</tool_call>\n", "Let me see.", [FIND]),
        ("hermes", f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call> Done. ", "Done. ", [FIND, FIND]),
        ("hermes", '<tool_call>{"arguments": {"a": 1}, "name": "stop"}</tool_call>', "", [("stop", '{"a": 1}')]),
        ("hermes", '<tool_call>{"name": "stop"}</tool_call>', "", [("stop", "{}")]),
        ("hermes", '<tool_call>{"name": "stop", "arguments": null}</tool_call>', "", [("stop", "{}")]),
        ("hermes", '<tool_call>{"name": "stop", "arguments": "{\\"a\\": 2}"}</tool_call>', "", [("stop", '{"a": 2}')]),
        ("hermes", '<tool_call>{"id": [1], "name": "stop", "arguments": {}, "x": 2}', "", [("stop", "{}")]),
        # Cut off: what was told of a call stays, what was not yet one is text.
        ("hermes", '<tool_call>\n{"name": "find", "arguments": {"text": "a', "", [("find", '{"text": "a')]),
        ("hermes", '<tool_call>\n{"name": "find", "argum', '<tool_call>\n{"name": "find", "argum', []),
        ("hermes", f"a <tool_call>{CALL}</tool", "a", [FIND]),
        ("hermes", "a <tool_ca", "a <tool_ca", []),
        # No call: not given, not well-formed.
        ("hermes", ' <tool_call>{"name": "other", "arguments": {}}</tool_call>', None, []),
        ("hermes", "x <tool_call>see</tool_call> y", None, []),
        ("hermes", f"<tool_call><tool_call>{CALL}</tool_call>", "<tool_call>", [FIND]),
        ("hermes", '<tool_call>{"name": "find" "arguments": {}}</tool_call>', None, []),
        ("hermes", '<tool_call>{"name": "find", "arguments": }</tool_call>', None, []),
        ("hermes", '{"name": "find", "arguments": {}}', None, []),
        ("hermes", " 2 < 3 \n ", None, []),
        ("llama3", '{"name": "find", "parameters": {"text": "x"}}', "", [("find", '{"text": "x"}')]),
        ("llama3", f"<|python_tag|>{CALL}; {CALL}", "", [FIND, FIND]),
        ("llama3", '\n{"find": 1} is JSON', None, []),
        ("llama3", f"Well, {CALL}", None, []),
        ("mistral", f"[TOOL_CALLS] [{CALL}, {CALL}]", "", [FIND, FIND]),
        ("mistral", f"Sure. [TOOL_CALLS]find[ARGS]{ARGUMENTS}[TOOL_CALLS]stop{{}}", "Sure.", [FIND, ("stop", "{}")]),
        ("mistral", "[TOOL_CALLS]stop[CALL_ID]0aB9[ARGS]{} [TOOL_CALLS]stop{}", "", [("stop", "{}"), ("stop", "{}")]),
        ("mistral", "[TOOL_CALLS]what is this[ARGS]{}", None, []),
        (
            "qwen3-coder",
            "Hm\n<tool_call>\n<function=find>\n<parameter=text>\n12\nb\n</parameter>\n<parameter=most>\n12\n</parameter>\n"
            "</function>\n</tool_call>\n<tool_call>\n<function=stop>\n</function>\n</tool_call>",
            "Hm",
            [("find", '{"text": "12\\nb", "most": 12}'), ("stop", "{}")],
        ),
        ("qwen3-coder", "<tool_call><function=no></function></tool_call>", None, []),
        # Models forget the mark before a call.
        (
            "qwen3-coder",
            "Hm\n<function=stop>\n</function>\n</tool_call>\n<function=stop></function> So.",
            "HmSo.",
            [("stop", "{}"), ("stop", "{}")],
        ),
        ("qwen3-coder", "a <function=no></function> or <function", None, []),
        # The closing tag inside of a JSON string is a part of it; in what is no JSON it closes.
        (
            "qwen3-coder",
            '<tool_call><function=find><parameter=most>["a\\"</parameter>", 1]</parameter><parameter=text>"</parameter>'
            '<parameter=other>["</parameter>\n"</parameter></function></tool_call>',
            "",
            [("find", '{"most": ["a\\"</parameter>", 1], "text": "\\"", "other": "[\\"</parameter>\\n\\""}')],
        ),
        (
            "deepseek",
            f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>find<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜>"
            "<｜tool▁call▁begin｜>stop<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "",
            [FIND, ("stop", "{}")],
        ),
        (
            "deepseek-v3",
            f"So.\n<｜tool▁calls▁begin｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>find\n```json\n{ARGUMENTS}\n```"
            "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>stop\n```json\n{}\n```<｜tool▁call▁end｜>"
            "<｜tool▁calls▁end｜>",
            "So.",
            [FIND, ("stop", "{}")],
        ),
        # The end of all calls, and the block's, may be missing; and each kind may be written where the other is known.
        ("deepseek-v3", f"<｜tool▁calls▁begin｜>find<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜> x", "x", [FIND]),
        ("deepseek", "<｜tool▁calls▁begin｜>function<｜tool▁sep｜>stop```json{}``` x", "x", [("stop", "{}")]),
        ("deepseek", "<｜tool▁calls▁begin｜>stop<｜tool▁sep｜>\n```json\n{}\n``", "", [("stop", "{}")]),
        ("deepseek", "<｜tool▁calls▁begin｜>function<｜tool▁sep｜>other\n```json\n{}\n```", None, []),
    ],
)  # fmt: skip
def test_what_is_read(fmt: ToolFormat, answer: str, text: str | None, calls: list[tuple[str, str]]) -> None:
    expected = (answer if text is None else text, calls)
    assert read(fmt, [answer]) == expected
    assert read(fmt, list(answer)) == expected
    for at in range(len(answer)):
        assert read(fmt, [answer[:at], answer[at:]]) == expected


FRAGMENTS = [
    "<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "<function=find>", "</function>",
    "<parameter=text>", "</parameter>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "function<｜tool▁sep｜>", "```json\n", "\n```", "[CALL_ID]", CALL,
    ARGUMENTS, '{"name": "stop"}', '{"arguments": {"a": 1}, ',
    '"name": "finder"}', '"parameters": ', "find", "stop", "{", "}", "[", "]", ",", ":", ";", '"', "\\", " ", "\n",
    "a", "é", "<", "true", "1",
]  # fmt: skip


@given(st.sampled_from(TOOL_FORMATS), st.lists(st.sampled_from(FRAGMENTS), max_size=24), st.data())
def test_any_cutting_reads_the_same(fmt: ToolFormat, fragments: list[str], data: st.DataObject) -> None:
    answer = "".join(fragments)
    most = data.draw(st.sampled_from([None, 1]))
    whole = read(fmt, [answer], most)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=12)))
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    assert read(fmt, pieces, most) == whole
    assert read(fmt, list(answer), most) == whole
    if most == 1:
        assert len(whole[1]) <= 1


@given(st.text(max_size=40), st.recursive(st.none() | st.integers() | st.text(max_size=8), st.lists, max_leaves=5))
def test_arguments_come_back_as_they_were_written(text: str, value: Any) -> None:
    arguments = json.dumps({"text": text, "value": value}, ensure_ascii=False)
    call = json.dumps({"name": "find", "arguments": json.loads(arguments)}, ensure_ascii=False)
    for fmt, answer in (("hermes", f"<tool_call>\n{call}\n</tool_call>"), ("mistral", f"[TOOL_CALLS][{call}]")):
        assert read(fmt, list(answer)) == ("", [("find", arguments)])  # type: ignore[arg-type]


def written(fmt: ToolFormat, calls: list[tuple[str, dict[str, Any]]]) -> str:
    """Calls as models of a format write them."""
    jsons = [(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in calls]
    objects = [f'{{"name": "{name}", "{"parameters" if fmt == "llama3" else "arguments"}": {a}}}' for name, a in jsons]
    if fmt == "hermes":
        return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in objects)
    if fmt == "llama3":
        return "; ".join(objects)
    if fmt == "mistral":
        return f"[TOOL_CALLS][{', '.join(objects)}]"
    if fmt == "qwen3-coder":
        return "\n".join(
            f"<tool_call>\n<function={name}>\n"
            + "".join(
                f"<parameter={key}>\n{v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)}\n</parameter>\n"
                for key, v in arguments.items()
            )
            + "</function>\n</tool_call>"
            for name, arguments in calls
        )
    head, tail = ("function<｜tool▁sep｜>%s\n```json\n", "\n```") if fmt == "deepseek-v3" else ("%s<｜tool▁sep｜>", "")
    told = [f"<｜tool▁call▁begin｜>{head % name}{a}{tail}<｜tool▁call▁end｜>" for name, a in jsons]
    return f"<｜tool▁calls▁begin｜>{(tail and chr(10)).join(told)}<｜tool▁calls▁end｜>"


HARD = st.text(alphabet=st.sampled_from('ab"\\{}[]`é\n </>｜'), max_size=12)


@given(
    st.sampled_from(TOOL_FORMATS),
    st.lists(
        st.tuples(st.sampled_from(["find", "finder", "stop"]), st.fixed_dictionaries({}, optional={"text": HARD})),
        min_size=1,
        max_size=3,
    ),
    st.data(),
)
def test_what_models_write_is_read_back_in_any_cutting(
    fmt: ToolFormat, calls: list[tuple[str, dict[str, Any]]], data: st.DataObject
) -> None:
    answer = written(fmt, [(name, {**a, "most": 3} if name == "find" else a) for name, a in calls])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=12)))
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    text, found = read(fmt, pieces)
    assert (text, len(found)) == ("", len(calls))
    for (name, arguments), (read_name, read_arguments) in zip(calls, found, strict=True):
        assert (read_name, json.loads(read_arguments)) == (
            name,
            {**arguments, "most": 3} if name == "find" else arguments,
        )


def test_after_the_only_call_everything_is_dropped() -> None:
    call = f"<tool_call>{CALL}</tool_call>"
    assert read("hermes", [f"So: {call} {call} and more"], most=1) == ("So:", [FIND])


@pytest.mark.parametrize(
    ("template", "fmt"),
    [
        ("{{ tools }}<tool_call>", "hermes"),
        ("{% if tools %}<tool_call><function=x>{% endif %}", "qwen3-coder"),
        ("{% for t in tools %}{{ t }}{% endfor %}[TOOL_CALLS]", "mistral"),
        ("<|start_header_id|>{{ tools }}{\"name\": n, \"parameters\": p}", "llama3"),
        ("{{ tools }}<｜tool▁sep｜>", "deepseek"),
        ("{{ tools }}<｜tool▁sep｜>```json", "deepseek-v3"),
        ("<tool_call>{{ messages }}", None),
        ("{{ tools }} and nothing known", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_template_tells_the_format(template: str, fmt: ToolFormat | None) -> None:
    assert tool_format(ChatTemplate({"default": template}, {}, "test")) == fmt


def test_a_named_format_is_taken_where_the_template_has_tools() -> None:
    assert tool_format(ChatTemplate({"default": "{{ tools }}"}, {}, "test"), "mistral") == "mistral"
    assert tool_format(ChatTemplate({"default": "{{ messages }}"}, {}, "test"), "mistral") is None
    assert tool_format(ChatTemplate.load(checkpoint("teacher"))) == "hermes"


def test_marks_that_are_special_tokens_are_shown_where_they_are_needed(backends: dict[str, Tokenizer]) -> None:
    backend = Tokenizer.from_str(backends["byte_level"].to_str())
    backend.add_tokens([AddedToken("[TOOL_CALLS]", special=True)])
    tokenizer = wrapped(backend)
    mark = backend.token_to_id("[TOOL_CALLS]")
    assert ChoiceText(tokenizer).push([mark]).text == ""
    assert ChoiceText(tokenizer.showing(MARKS)).push([mark]).text == "[TOOL_CALLS]"
    assert tokenizer.special_ids - {mark} == tokenizer.showing(MARKS).special_ids
    assert wrapped(backends["byte_level"]).showing(["nothing"]).vocab_size == backends["byte_level"].get_vocab_size()
