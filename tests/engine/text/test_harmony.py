"""Answers in harmony, however they are cut; conversations as its chat template takes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harmony_model import SPECIALS, TEMPLATE, WORDS, write_harmony
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import write_tokenizer

from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.harmony import APART, MARKS, speaks_harmony
from headgate.engine.text.harmony_reader import HarmonyReader
from headgate.engine.text.reasoning import thinks
from headgate.engine.text.stream import ChoiceText
from headgate.engine.text.tokenizer import Tokenizer
from headgate.engine.text.tool_calls import tool_format

FUNCTIONS = ("find", "stop")
BEGUN = "<|start|>assistant"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(write_harmony(tmp_path_factory.mktemp("harmony")))


class Read(NamedTuple):
    thoughts: str
    text: str
    calls: list[tuple[str, str]]
    order: str
    """Of what there was: reasoning, text, calls."""
    tokens: int


def said(
    tokenizer: Tokenizer,
    pieces: Sequence[Sequence[int]],
    *,
    functions: Sequence[str] = FUNCTIONS,
    begun: str = BEGUN,
    most: int | None = None,
    stops: tuple[str, ...] = (),
) -> Read:
    """What comes out of a choice's stream."""
    shown = tokenizer.showing(MARKS, APART)
    before = tokenizer.encode(begun, add_special_tokens=False)
    reader, text = HarmonyReader(shown, functions, before, most=most, stops=stops), ChoiceText(shown)
    told = [one for tokens in pieces[:-1] for one in reader.push(text.push(tokens).text, tokens)]
    last = pieces[-1] if pieces else ()
    told += reader.push(text.push(last).text + text.finish().text, last, last=True)
    kinds = [kind for one in told for kind in ("reasoning", "text", "calls") if getattr(one, kind)]
    order = "".join(kind[0] for kind, _ in groupby(kinds))
    calls: list[tuple[str, str]] = []
    for piece in (piece for one in told for piece in one.calls):
        if piece.name is not None:
            calls.append((piece.name, ""))
        assert piece.index == len(calls) - 1
        calls[-1] = (calls[-1][0], calls[-1][1] + piece.arguments)
    thoughts, texts = "".join(one.reasoning for one in told), "".join(one.text for one in told)
    assert APART not in thoughts + texts
    return Read(thoughts, texts, calls, order, reader.tokens)


def read(tokenizer: Tokenizer, answer: str, **more: Any) -> tuple[str, str, list[tuple[str, str]]]:
    """What an answer says, cut between all tokens and not at all."""
    tokens = tokenizer.encode(answer, add_special_tokens=False)
    whole = said(tokenizer, [tokens], **more)
    assert said(tokenizer, [[token] for token in tokens], **more) == whole
    return whole[:3]


THOUGHT, FINAL = "<|channel|>analysis<|message|>Hm.\n<|end|>", "<|channel|>final<|message|>"
CALL = '<|channel|>commentary to=functions.find <|constrain|>json<|message|>{"a": "}"}<|call|>'
FOUND = [("find", '{"a": "}"}')]


@pytest.mark.parametrize(
    ("answer", "thoughts", "text", "calls"),
    [
        (f"{THOUGHT}{BEGUN}{FINAL} Yes. <|return|>", "Hm.\n", " Yes. ", []),
        (f"{FINAL}Yes", "", "Yes", []),
        (f"{THOUGHT}{BEGUN}{CALL}", "Hm.\n", "", FOUND),
        (f"{THOUGHT}{BEGUN}{THOUGHT}{BEGUN}{FINAL}A", "Hm.\n\n\nHm.\n", "A", []),
        # The recipient before the channel; no kind of content, or another; in another channel; without its namespace.
        (' to=functions.find<|channel|>commentary json<|message|>{"a": "}"}<|call|>', "", "", FOUND),
        ('<|channel|>commentary to=functions.find<|message|>{"a": "}"}<|call|>', "", "", FOUND),
        ('<|channel|>analysis to=functions.find code<|message|>{"a": "}"}<|call|>', "", "", FOUND),
        ('<|channel|>commentary to=find<|message|>\n{"a": "}"}\n<|call|>', "", "", FOUND),
        # A remark before a call is text; so is one behind it.
        (f"<|channel|>commentary<|message|>I look.<|end|>{BEGUN}{CALL}", "", "I look.", FOUND),
        (f"{CALL.removesuffix('<|call|>')} So <|end|>{BEGUN}{FINAL}A", "", "So \n\nA", FOUND),
        ("<|channel|>commentary to=functions.stop<|message|><|call|>", "", "", [("stop", "{}")]),
        # Marks that are written in letters are what is talked about.
        (f"{FINAL}The mark <|e", "", "The mark <|e", []),
        # No call: not given, no object.
        ('<|channel|>commentary to=functions.no json<|message|>{"a": 1}<|call|>', "", 'to=functions.no {"a": 1}', []),
        ("<|channel|>analysis to=python code<|message|>1 + 1<|call|>", "to=python 1 + 1", "", []),
        ("<|channel|>commentary to=functions.find<|message|>a<|call|>", "", "to=functions.find a", []),
        # Cut: before the arguments there is no call yet, in them there is one.
        ("<|channel|>commentary to=functions.find<|message|>", "", "to=functions.find", []),
        ('<|channel|>commentary to=functions.find<|message|>{"a": ', "", "", [("find", '{"a": ')]),
        ("<|channel|>commentary to=functions.fi", "", "to=functions.fi", []),
        (f"{THOUGHT}{BEGUN}<|channel|>fi", "Hm.\n", "", []),
        (f"{THOUGHT}<|start|>ass", "Hm.\n", "", []),
        ("<|channel|>analysis<|message|>Hm", "Hm", "", []),
        # Headers that lack something, or have too much.
        ("<|message|>Yes<|return|>", "", "Yes", []),
        ("Yes, and so on.", "", "Yes, and so on.", []),
        ("<|channel|>final Yes<|return|>", "", "Yes", []),
        ("<|channel|>analysis Hm<|end|><|start|>assistant<|channel|>final<|message|>A", "Hm", "A", []),
        (f"<|channel|>??<|end|>{BEGUN}{THOUGHT}{BEGUN}{FINAL}A", "??\n\nHm.\n", "A", []),
        (f"<|channel|>??<|end|>{BEGUN}{THOUGHT}{BEGUN}", "??\n\nHm.\n", "", []),
        ("<|channel|>?? So<|return|>", "", "?? So", []),
        ("<|channel|>other<|message|>A<|return|>", "", "A", []),
        (f"<|channel|>commentary to=assistant{THOUGHT}{BEGUN}{FINAL}A", "Hm.\n", "A", []),
        (f"<|start|>{BEGUN}{FINAL}A", "", "A", []),
        # Ends and beginnings that are left out, and marks that belong nowhere.
        (f"<|channel|>analysis<|message|>Hm.{BEGUN}{CALL}", "Hm.", "", FOUND),
        (f"<|channel|>analysis<|message|>Hm.{FINAL}A", "Hm.", "A", []),
        (f"{THOUGHT} 364 {BEGUN}{FINAL}A<|constrain|>B<|message|>C<|end|>\n", "Hm.\n\n\n364", "ABC", []),
        ("", "", "", []),
    ],
)  # fmt: skip
def test_what_is_read(
    tokenizer: Tokenizer, answer: str, thoughts: str, text: str, calls: list[tuple[str, str]]
) -> None:
    assert read(tokenizer, answer) == (thoughts, text, calls)


def test_marks_in_letters_are_text(tokenizer: Tokenizer) -> None:
    spelled = [tokenizer.encode(part, add_special_tokens=False) for part in ("<", "|end|>", "<", "|start|>x")]
    head = tokenizer.encode(FINAL, add_special_tokens=False)
    whole = said(tokenizer, [head + [token for part in spelled for token in part]])
    assert whole[:3] == ("", "<|end|><|start|>x", [])


def test_what_the_prompt_began_goes_on(tokenizer: Tokenizer) -> None:
    opened = f"{BEGUN}<|channel|>analysis<|message|>Well"
    assert read(tokenizer, f" so.<|end|>{BEGUN}{FINAL}A", begun=opened) == (" so.", "A", [])
    assert read(tokenizer, "A", begun=f"{BEGUN}{FINAL}") == ("", "A", [])
    assert read(tokenizer, f"{FINAL}A", begun="") == ("", "A", [])


def test_after_the_only_call_nothing_counts(tokenizer: Tokenizer) -> None:
    two = f"{CALL.replace('<|call|>', '<|end|>')}{BEGUN}{CALL}"
    assert read(tokenizer, two) == ("", "", FOUND * 2)
    assert read(tokenizer, f"{two}{BEGUN}{FINAL}A", most=1) == ("", "", FOUND)
    assert read(tokenizer, CALL, functions=()) == ("", 'to=functions.find {"a": "}"}', [])


def test_what_is_thought_between_texts_and_calls_stays_between_them(tokenizer: Tokenizer) -> None:
    remark = "<|channel|>commentary<|message|>I look.<|end|>"
    answer = BEGUN.join([THOUGHT, remark, THOUGHT, CALL.replace("<|call|>", "<|end|>"), THOUGHT, f"{FINAL}A"])
    tokens = tokenizer.encode(answer, add_special_tokens=False)
    assert said(tokenizer, [tokens]).order == said(tokenizer, [[token] for token in tokens]).order == "rtrcrt"


def test_a_stop_string_ends_thoughts_as_it_ends_answers(tokenizer: Tokenizer) -> None:
    assert read(tokenizer, f"{THOUGHT}{BEGUN}{FINAL}A\nB", stops=("\nB",)) == ("Hm.\n", "A", [])
    assert read(tokenizer, f"{THOUGHT}{BEGUN}{FINAL}A", stops=("m.",)) == ("H", "", [])
    for mark in ("<|end|>", "end", "assistant", "final", "functions", "\n\n"):
        assert read(tokenizer, f"{THOUGHT}{BEGUN}{THOUGHT}{BEGUN}{CALL}", stops=(mark,)) == (
            "Hm.\n\n\nHm.\n",
            "",
            FOUND,
        )


@pytest.mark.parametrize(
    ("answer", "begun", "tokens"),
    [
        (f"<|channel|>analysis<|message|>a b<|end|>{BEGUN}{FINAL}A", BEGUN, 7),
        (f"<|channel|>analysis<|message|>a<|end|>{BEGUN}<|channel|>analysis<|message|>a{BEGUN}{FINAL}A", BEGUN, 11),
        (f"a<|end|>{BEGUN}{FINAL}A", f"{BEGUN}<|channel|>analysis<|message|>", 2),
        (f"<|channel|>commentary<|message|>a<|end|>{BEGUN}{FINAL}A", BEGUN, 0),
    ],
)
def test_tokens_of_thoughts_are_counted_with_their_marks(
    tokenizer: Tokenizer, answer: str, begun: str, tokens: int
) -> None:
    ids = tokenizer.encode(answer, add_special_tokens=False)
    assert said(tokenizer, [ids[:3], ids[3:]], begun=begun).tokens == tokens


PARTS = [
    *SPECIALS[1:], *WORDS, " to=functions.find", " to=functions.no", " json", '{"a"', ": 1}",
    " ", "\n", "é", "Hm", "<|", BEGUN, THOUGHT, FINAL, CALL[:-8],
]  # fmt: skip


@given(st.lists(st.sampled_from(PARTS), max_size=14), st.booleans(), st.data())
def test_any_cutting_reads_the_same_and_shows_no_mark(
    tokenizer: Tokenizer, parts: list[str], stopped: bool, data: st.DataObject
) -> None:
    tokens = [token for part in parts for token in tokenizer.encode(part, add_special_tokens=False)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=6)))
    pieces = [tokens[a:b] for a, b in zip([0, *cuts], [*cuts, len(tokens)], strict=True)]
    stops = ("m.\n", ": ") if stopped else ()
    whole = said(tokenizer, [tokens], stops=stops)
    cut = said(tokenizer, [piece for piece in pieces if piece], stops=stops)
    assert cut[:4] == whole[:4]
    assert cut.tokens == whole.tokens or stopped, "who looks for stop strings asks at each token if there was one"


BODIES = st.text(alphabet="ab{}<|> \né", min_size=1, max_size=8).map(lambda text: f"x{text}x")


@given(
    st.lists(st.tuples(st.sampled_from(["analysis", "commentary", "final", "other"]), BODIES), max_size=5), st.data()
)
def test_no_body_is_lost_where_marks_are(
    tokenizer: Tokenizer, messages: list[tuple[str, str]], data: st.DataObject
) -> None:
    ends = [data.draw(st.sampled_from(["<|end|>", "", "<|end|>\n"])) for _ in messages]
    answer = BEGUN.join(
        f"<|channel|>{channel}<|message|>{body}{end}" for (channel, body), end in zip(messages, ends, strict=True)
    )
    thoughts, text, calls = read(tokenizer, answer)
    assert thoughts == "\n\n".join(body for channel, body in messages if channel == "analysis")
    assert text == "\n\n".join(body for channel, body in messages if channel != "analysis")
    assert calls == []


def test_the_template_and_the_tokens_tell_the_format(tmp_path: Path, tokenizer: Tokenizer) -> None:
    template = ChatTemplate({"default": TEMPLATE}, {}, "memory")
    assert thinks(template, tokenizer) == "harmony"
    assert tool_format(template, harmony=True) == "harmony"
    assert tool_format(template, "hermes", harmony=True) == "harmony"
    plain = ChatTemplate({"default": "{{ messages }}"}, {}, "memory")
    assert tool_format(plain, harmony=True) is None, "it is told of no functions"
    assert not speaks_harmony(plain, tokenizer)
    write_tokenizer(tmp_path)
    assert thinks(template, Tokenizer.load(tmp_path)) is None, "no tokens of its own"


def test_answers_and_calls_end_whatever_the_files_name(tmp_path: Path, tokenizer: Tokenizer) -> None:
    named = {tokenizer.token(mark) for mark in ("<|return|>", "<|call|>", "<|endoftext|>")}
    assert set(tokenizer.eos_ids) == named
    assert tokenizer.token("<|end|>") not in tokenizer.eos_ids
    tuned = Tokenizer.load(write_harmony(tmp_path, ends=("<|end|>", "<|return|>")))
    assert set(tuned.eos_ids) == {tuned.token("<|return|>"), tuned.token("<|call|>")}


def call(name: str, made: str) -> dict[str, Any]:
    return {"id": made, "type": "function", "function": {"name": name, "arguments": {"a": 1}}}


def rendered(*messages: dict[str, Any], tools: list[dict[str, Any]] | None = None) -> str:
    """What stands behind the system message."""
    text = ChatTemplate({"default": TEMPLATE}, {}, "memory").render(messages, tools=tools)
    assert text.endswith(BEGUN)
    return text.partition("<|end|>")[2].removesuffix(BEGUN)


ASKED, RESULT = {"role": "user", "content": "Q"}, {"role": "tool", "content": "3", "tool_call_id": "a"}
USER = "<|start|>user<|message|>Q<|end|>"


def calls_and_is_answered(name: str, result: str) -> str:
    return (
        f'<|start|>assistant to=functions.{name}<|channel|>commentary json<|message|>{{"a": 1}}<|call|>'
        f'<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>"{result}"<|end|>'
    )


def test_thoughts_before_calls_are_shown_until_an_answer_follows() -> None:
    called = {"role": "assistant", "content": None, "reasoning_content": "Hm", "tool_calls": [call("find", "a")]}
    analysis = "<|start|>assistant<|channel|>analysis<|message|>Hm<|end|>"
    behind = calls_and_is_answered("find", "3")
    assert rendered(ASKED, called, RESULT) == USER + analysis + behind
    spoken = {**called, "content": "I look."}
    assert rendered(ASKED, spoken, RESULT) == USER + analysis.replace("Hm", "Hm\n\nI look.") + behind
    unthought = {**spoken, "reasoning_content": None}
    assert rendered(ASKED, unthought, RESULT) == USER + analysis.replace("Hm", "I look.") + behind
    answer = {"role": "assistant", "content": "A", "reasoning_content": "So"}
    final = "<|start|>assistant<|channel|>final<|message|>A<|end|>"
    assert rendered(ASKED, called, RESULT, answer, ASKED) == USER + behind + final + USER


def test_several_calls_are_made_one_after_the_other_with_their_results() -> None:
    called = {"role": "assistant", "content": "", "tool_calls": [call("find", "a"), call("stop", "b")]}
    results = [{"role": "tool", "content": "4", "tool_call_id": "b"}, RESULT]
    behind = calls_and_is_answered("find", "3") + calls_and_is_answered("stop", "4")
    assert rendered(ASKED, called, *results, ASKED) == USER + behind + USER


def test_all_instructions_stand_in_the_first_message() -> None:
    one, two = {"role": "system", "content": "One."}, {"role": "system", "content": "Two."}
    tools = [{"type": "function", "function": {"name": "find", "parameters": {}}}]
    told = "<|start|>developer<|message|>One.\n\nTwo.\n// \ntype find<|end|>"
    assert rendered(one, ASKED, two, tools=tools) == told + USER
