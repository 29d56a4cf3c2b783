"""Answers of a given form: random models, random schemas, and jsonschema as the judge."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from engine_site import serving
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tiny_models import MakeCheckpoint, write_tokenizer

from headgate.engine.engine import Engine
from headgate.engine.front.choice import TextDelta
from headgate.engine.front.local import LocalModel
from headgate.engine.sampling.grammar import Grammar, GrammarError
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.engine.text.answer_grammar import CallForm, answer_grammar, json_grammar
from headgate.engine.text.tagged_grammar import FormError
from headgate.engine.text.tool_calls import TOOL_FORMATS, ToolCallReader, ToolFormat

PROMPT = tuple(range(40, 70))
GREEDY = SamplingParams(temperature=0.0, max_tokens=400)
PAIR: dict[str, Any] = {
    "type": "object",
    "properties": {"b": {"enum": ["yes", "no"]}, "a": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
    "required": ["b", "a"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(tiny_checkpoint: Path) -> Iterator[LocalModel]:
    engine = Engine(EngineSettings(threads=1))
    engine.load(ModelSpec("m", tiny_checkpoint))
    engine.start()
    yield engine.models["m"]
    engine.stop()


async def collect(
    model: LocalModel, grammar: Grammar | None, sampling: SamplingParams = GREEDY, n: int = 1, **options: Any
) -> list[list[TextDelta]]:
    choices: list[list[TextDelta]] = [[] for _ in range(n)]
    async for delta in model.generate("r", PROMPT, sampling, n=n, grammar=grammar, **options):
        choices[delta.index].append(delta)
    return choices


def texts(choices: list[list[TextDelta]]) -> list[str]:
    return ["".join(delta.text for delta in choice) for choice in choices]


def finish(choice: list[TextDelta]) -> str:
    last = choice[-1].finish
    assert last is not None
    return last.reason


def answers(model: LocalModel, schema: Any, sampling: SamplingParams = GREEDY, n: int = 1) -> list[tuple[str, str]]:
    """Text and finish of each choice."""

    async def ask() -> list[list[TextDelta]]:
        return await collect(model, await model.grammar(json_grammar(schema)), sampling, n)

    choices = asyncio.run(ask())
    return list(zip(texts(choices), map(finish, choices), strict=True))


NAMES = st.text("abcxyz_é", min_size=1, max_size=4)
LEAVES = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(
        lambda a, b: {"type": "integer", "minimum": a, "maximum": a + b}, st.integers(-99, 99), st.integers(0, 99)
    ),
    st.builds(
        lambda a, b: {"type": "string", "minLength": a, "maxLength": a + b}, st.integers(0, 2), st.integers(0, 6)
    ),
    st.builds(lambda v: {"enum": v}, st.lists(NAMES | st.integers(-9, 9), min_size=1, max_size=3, unique=True)),
    st.just({"type": "string", "pattern": "^[A-C]{1,4}-[0-9]{2}$"}),
    st.just({"type": "string", "format": "date"}),
    st.builds(lambda v: {"const": v}, NAMES),
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def build(properties: dict[str, Any], optional: int) -> Any:
        required = list(properties)[optional:]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    return st.builds(build, st.dictionaries(NAMES, inner, max_size=3), st.integers(0, 2))


def arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda items, a, b: {"type": "array", "items": items, "minItems": a, "maxItems": a + b},
        inner,
        st.integers(0, 1),
        st.integers(0, 2),
    )


def either(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(lambda one, other: {"anyOf": [one, other]}, inner, inner)


SCHEMAS = st.recursive(LEAVES, lambda inner: objects(inner) | arrays(inner) | either(inner), max_leaves=5)


@settings(max_examples=60)
@given(SCHEMAS, st.sampled_from([0.0, 1.0, 2.0]), st.integers(0, 9))
def test_every_finished_answer_follows_its_schema(
    model: LocalModel, schema: Any, temperature: float, seed: int
) -> None:
    sampling = SamplingParams(temperature=temperature, seed=seed, max_tokens=400, logprobs=1 if seed % 2 else None)
    for text, reason in answers(model, schema, sampling, n=2):
        assert reason == "stop", f"{text!r} was not finished"
        jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)


def test_properties_come_in_the_order_of_the_schema(model: LocalModel) -> None:
    ((text, _),) = answers(model, PAIR)
    assert list(json.loads(text)) == ["b", "a"]


def test_an_answer_that_is_cut_is_a_part_of_one(model: LocalModel) -> None:
    ((whole, _),) = answers(model, PAIR)
    ((cut, reason),) = answers(model, PAIR, replace(GREEDY, max_tokens=3))
    assert reason == "length"
    assert whole.startswith(cut)
    assert cut != whole


@pytest.mark.parametrize(
    "change",
    [
        {"presence_penalty": 2.0, "frequency_penalty": 2.0, "repetition_penalty": 1.5},
        {"logit_bias": tuple((token, 100.0) for token in range(100, 200))},
        {"temperature": 1.5, "top_p": 0.5, "top_k": 5, "min_p": 0.2, "seed": 4},
        {"temperature": 2.0, "top_k": 1, "seed": 1},
        {"logprobs": 5},
        # The form alone says how it begins.
        {"begin_suppress_tokens": tuple(range(320))},
    ],
)
def test_every_way_to_choose_keeps_to_the_form(model: LocalModel, change: dict[str, Any]) -> None:
    for text, reason in answers(model, PAIR, replace(GREEDY, **change), n=3):
        assert reason == "stop"
        jsonschema.validate(json.loads(text), PAIR)


def test_a_stop_string_ends_it_earlier(model: LocalModel) -> None:
    async def ask() -> list[list[TextDelta]]:
        return await collect(model, await model.grammar(json_grammar(PAIR)), stop=('"a"',))

    ((text,), (reason,)) = (texts(choices := asyncio.run(ask())), list(map(finish, choices)))
    assert reason == "stop"
    assert text.endswith('", ')


def test_others_of_the_batch_are_as_if_alone(model: LocalModel) -> None:
    free = replace(GREEDY, max_tokens=40, ignore_eos=True)

    async def ask() -> tuple[list[str], list[list[str]]]:
        grammar = await model.grammar(json_grammar(PAIR))
        alone = [texts(await collect(model, g, s))[0] for g, s in ((grammar, GREEDY), (None, free))]
        both = await asyncio.gather(collect(model, grammar), collect(model, None, free), collect(model, grammar))
        return alone, [texts(one) for one in both]

    alone, together = asyncio.run(ask())
    assert together == [[alone[0]], [alone[1]], [alone[0]]]


def test_preemption_changes_nothing(tiny_checkpoint: Path, model: LocalModel) -> None:
    """A cache for about one answer and a half: sequences lose their blocks in the middle of a value."""
    schema = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 30, "maxItems": 30}
    sampling = replace(GREEDY, temperature=1.0, seed=3)
    calm = [text for text, _ in answers(model, schema, sampling, n=3)]
    engine = Engine(EngineSettings(threads=1, kv_bytes=model.info.kv_bytes_per_token * 16 * 12, prefix_cache=False))
    engine.load(ModelSpec("m", tiny_checkpoint))
    engine.start()
    try:
        pressed = [text for text, _ in answers(engine.models["m"], schema, sampling, n=3)]
        assert engine.models["m"].stats().preemptions > 0
    finally:
        engine.stop()
    assert pressed == calm
    for text in pressed:
        jsonschema.validate(json.loads(text), schema)


def test_a_padded_vocabulary_is_held_to_the_form_too(make_checkpoint: MakeCheckpoint) -> None:
    folder = make_checkpoint("qwen2", vocab_size=333)
    write_tokenizer(folder)
    engine = Engine(EngineSettings(threads=1))
    engine.load(ModelSpec("m", folder))
    engine.start()
    try:
        for text, reason in answers(engine.models["m"], PAIR, replace(GREEDY, temperature=2.0, seed=1), n=4):
            assert reason == "stop"
            jsonschema.validate(json.loads(text), PAIR)
    finally:
        engine.stop()


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "colour"}, "colour"),
        ({"$ref": "#/$defs/none"}, "none"),
        ({"type": "string", "pattern": "(?=a)"}, "regex"),
        ({"not": {"type": "string"}}, "not"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "incompatible"),
        ({"$ref": "#"}, "no token may come next"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "no token"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused(model: LocalModel, schema: Any, said: str) -> None:
    with pytest.raises(GrammarError, match=said):
        asyncio.run(model.grammar(json_grammar(schema)))


def test_a_grammar_is_compiled_once(model: LocalModel) -> None:
    async def twice() -> tuple[Grammar, Grammar]:
        return await model.grammar(json_grammar(PAIR)), await model.grammar(json_grammar(PAIR))

    first, second = asyncio.run(twice())
    assert first is second


class Lost(Grammar):
    """A grammar that cannot be followed beyond the first token."""

    def __init__(self) -> None:
        pass

    def guide(self, start: int) -> Any:  # noqa: ARG002
        class Guide:
            leads = True

            def follow(self, tokens: Any) -> None: ...

            def begin(self, tokens: Any) -> None: ...

            def forbidden(self) -> Any:
                raise GrammarError("it grew too complex")

            def allow(self, address: int) -> None:  # noqa: ARG002
                raise GrammarError("it grew too complex")

        return Guide()


def test_who_loses_his_grammar_fails_alone(model: LocalModel) -> None:
    async def ask() -> list[list[list[TextDelta]]]:
        return await asyncio.gather(collect(model, Lost()), collect(model, None), collect(model, None))

    lost, *others = asyncio.run(ask())
    last = lost[0][-1].finish
    assert last is not None
    assert (last.reason, last.error, last.cause) == ("error", "it grew too complex", "grammar")
    assert {finish(one[0]) for one in others} <= {"stop", "length"}


TOOLS: dict[str, Any] = {
    "find": PAIR,
    "stop": {"type": "object", "properties": {}, "additionalProperties": False},
    "say": {
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 1, "maxLength": 9},
            "tone": {"type": "string", "enum": ["calm", "a <loud>\none"]},
            "who": {"$ref": "#/$defs/names"},
            "also": {"type": "string", "const": ""},
        },
        "required": ["text", "tone"],
        "additionalProperties": False,
        "$defs": {"names": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 2}},
    },
}


@pytest.mark.parametrize("fmt", TOOL_FORMATS)
@pytest.mark.parametrize("several", [False, True])
def test_required_calls_are_read_back_and_follow_their_schemas(
    model: LocalModel, fmt: ToolFormat, several: bool
) -> None:
    tools = [{"type": "function", "function": {"name": name, "parameters": TOOLS[name]}} for name in TOOLS]
    text = answer_grammar(None, CallForm(fmt, TOOLS, required=True, several=several))
    assert text is not None
    sampling = replace(GREEDY, temperature=1.0, seed=2)

    async def ask() -> list[list[TextDelta]]:
        return await collect(model, await model.grammar(text), sampling, n=4)

    for choice in asyncio.run(ask()):
        reader = ToolCallReader(fmt, tools)
        said = [reader.push("".join(delta.text for delta in choice)), reader.finish()]
        calls = [piece for one in said for piece in one.calls if piece.name is not None]
        assert calls
        assert several or len(calls) == 1
        # What is cut may end in the marks of a call that has not begun.
        if finish(choice) == "stop":
            assert "".join(one.text for one in said) == ""
            for call in calls:
                pieces = [p.arguments for one in said for p in one.calls if p.index == call.index]
                jsonschema.validate(json.loads("".join(pieces)), TOOLS[call.name or ""])


@pytest.mark.parametrize(("ends", "usable"), [([2, 99_999], True), ([318, 2], True), ([99_999], False)])
def test_ends_that_the_vocabulary_lacks_are_left_out(
    ends: list[int], usable: bool, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_checkpoint, tmp_path / "model"))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    (folder / "tokenizer_config.json").write_text("{}")
    with serving(folder, EngineSettings(threads=1)) as model:
        if usable:
            assert answers(model, {"const": "x"}) == [('"x"', "stop")]
        else:
            with pytest.raises(GrammarError, match="vocabulary cannot be held to a form"):
                answers(model, {"const": "x"})


STRINGS = st.builds(
    lambda a, b: {"type": "string", "minLength": a, "maxLength": a + b}, st.integers(0, 2), st.integers(0, 6)
) | st.builds(lambda values: {"type": "string", "enum": values}, st.lists(NAMES, min_size=1, max_size=3))


@settings(max_examples=12)
@given(
    st.dictionaries(NAMES.map(str.strip), STRINGS | SCHEMAS, min_size=1, max_size=3),
    st.integers(0, 2),
    st.booleans(),
    st.integers(0, 9),
)
def test_tagged_calls_follow_their_schemas(
    model: LocalModel, properties: dict[str, Any], optional: int, required: bool, seed: int
) -> None:
    """Some by themselves, some because they must: random tokens seldom begin a call that they need not make."""
    schema = {"type": "object", "properties": properties, "required": list(properties)[optional:]}
    tools = [{"type": "function", "function": {"name": "find", "parameters": schema}}]
    form = CallForm("qwen3-coder", {"find": schema}, required=required, several=False)
    try:
        text = answer_grammar(None if required else {"const": "no"}, form)
    except FormError:
        assume(False)
    assert text is not None
    sampling = replace(GREEDY, temperature=2.0, seed=seed)

    async def ask() -> list[list[TextDelta]]:
        return await collect(model, await model.grammar(text), sampling, n=2)

    for choice in asyncio.run(ask()):
        assert finish(choice) == "stop"
        reader = ToolCallReader("qwen3-coder", tools)
        said = [reader.push("".join(delta.text for delta in choice)), reader.finish()]
        rest = "".join(one.text for one in said)
        assert rest == "" or (not required and rest == '"no"')
        if rest == "":
            jsonschema.validate(json.loads("".join(p.arguments for one in said for p in one.calls)), schema)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"properties": {"a": {"type": "string", "pattern": "^a$"}}}, "'pattern'"),
        ({"properties": {"a": {"type": "string", "enum": [1]}}}, "the values"),
        ({"properties": {"a": {"type": "string", "const": "x</parameter>"}}}, "the values"),
        ({"properties": {"a>b": {}}}, "cannot be written as a tag"),
        ({"properties": {"a": False}}, "no value"),
        ({"anyOf": [{}]}, "'anyOf'"),
    ],
)
def test_tagged_calls_that_cannot_be_held_to_a_schema_are_refused(schema: Any, said: str) -> None:
    with pytest.raises(FormError, match=said):
        answer_grammar(None, CallForm("qwen3-coder", {"find": schema}, required=True, several=True))
