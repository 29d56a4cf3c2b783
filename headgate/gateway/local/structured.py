"""The form that a request wants its answer in, as a grammar of the model that will write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headgate.engine.front.local import LocalModel
from headgate.engine.sampling.grammar import Grammar, GrammarError
from headgate.engine.text.answer_grammar import (
    CallForm,
    after_thinking,
    answer_grammar,
    any_text,
    arguments_grammar,
    json_grammar,
)
from headgate.engine.text.harmony_grammar import harmony_grammar
from headgate.engine.text.tagged_grammar import FormError
from headgate.engine.text.tool_calls import CallFormat
from headgate.gateway.road.request import ChatRequest, Tool
from headgate.gateway.wire.errors import ApiError, invalid, unsupported

SCHEMA = "response_format.json_schema.schema"
_NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_MOST_PARTS, _MOST_VALUES = 5000, 50_000
"""Objects and arrays, and values of any kind, in all schemas of a request. Compiling that many takes seconds, and each
step up to 60 ms more."""


async def grammar_of(request: ChatRequest, model: LocalModel, prompt: Sequence[int]) -> Grammar | None:
    """The grammar that the answer must follow; None where it may be any text.

    ApiError 400 where a schema cannot be followed, or the model's way to write calls cannot be held to a form.
    """
    schema = request.response_format.schema
    held = request.tool_use.mode == "required" or any(tool.strict for tool in request.callable_tools)
    most = request.thinking_tokens if model.info.thinks else None
    if schema is None and not held and most is None:
        return None
    if request.sampling.ignore_eos:
        raise unsupported("ignore_eos", "'ignore_eos' is not supported together with an answer of a given form.")
    if schema is not None:
        _check_parts([schema], SCHEMA)
        await _checked(json_grammar(schema), model, SCHEMA)
    calls = await _calls(request, model) if request.callable_tools else None
    if calls is not None:
        try:
            _check_parts([schema, *calls.functions.values()], "tools")
        except ApiError:
            calls = _only_strict(calls, request)
            _check_parts([schema, *calls.functions.values()], "tools")
    text = _written(schema, calls, model, prompt, most)
    return None if text is None else await _checked(text, model, _path(request))


def _written(
    schema: Mapping[str, Any] | None, calls: CallForm | None, model: LocalModel, prompt: Sequence[int], most: int | None
) -> str | None:
    """The grammar's text. What the model thinks first is free, but for how much; `most`: tokens of it."""
    if model.info.thinks == "harmony":
        return harmony_grammar(schema, calls, opened=model.answers.opens_thinking(prompt), most=most)
    text = answer_grammar(schema, calls)
    if text is None:
        if most is None:
            return None
        text = any_text()
    if model.info.thinks is None:
        return text
    return after_thinking(text, opened=model.answers.opens_thinking(prompt), most=most)


def cannot_follow(request: ChatRequest, why: str) -> ApiError:
    """400: a model got into the form that a request wants, but no further."""
    return _cannot(_path(request), why)


def _path(request: ChatRequest) -> str:
    """What of a request says the form of its answer."""
    if request.response_format.schema is not None:
        return SCHEMA
    return "tools" if request.callable_tools else "thinking_tokens"


async def _calls(request: ChatRequest, model: LocalModel) -> CallForm:
    use, fmt = request.tool_use, model.info.tool_calls
    if fmt is None:
        param = (
            "tool_choice" if use.mode == "required" else "tools" if request.response_format.schema is None else SCHEMA
        )
        message = f"The model '{model.info.name}' writes calls of functions in a way that cannot be held to a form."
        raise unsupported(param, message)
    functions = {}
    for at, tool in enumerate(request.callable_tools):
        if use.name in (None, tool.name):
            functions[tool.name] = await _arguments(tool, fmt, model, f"tools[{at}].function.parameters")
    return CallForm(fmt, functions, required=use.mode == "required", several=use.parallel)


async def _arguments(tool: Tool, fmt: CallFormat, model: LocalModel, path: str) -> Mapping[str, Any]:
    """The schema of a call's arguments; any object where it is not strict and its schema cannot be followed."""
    if not tool.parameters:
        return _NO_ARGUMENTS
    schema = {"type": "object", **tool.parameters}
    try:
        _check_parts([schema], path)
        await _checked(json_grammar(schema), model, path)
        await _checked(_form(fmt, schema, path), model, path)
    except ApiError:
        if tool.strict:
            raise
        return _ANY_OBJECT
    return schema


def _only_strict(calls: CallForm, request: ChatRequest) -> CallForm:
    """The same, but any object as arguments of functions that are not strict: many tools together are no fault."""
    strict = {tool.name for tool in request.callable_tools if tool.strict}
    kept = {name: schema if name in strict else _ANY_OBJECT for name, schema in calls.functions.items()}
    return replace(calls, functions=kept)


def _form(fmt: CallFormat, schema: Mapping[str, Any], path: str) -> str:
    try:
        return arguments_grammar(fmt, schema)
    except FormError as error:
        raise _cannot(path, error) from None


def _check_parts(schemas: Sequence[object], path: str) -> None:
    """ApiError 400 where that is more than may be compiled."""
    left, parts, values = list(schemas), 0, 0
    while left:
        value = left.pop()
        values += 1
        inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else None
        if inner is not None:
            parts += 1
            left.extend(inner)
        if parts > _MOST_PARTS or values > _MOST_VALUES:
            raise _cannot(path, f"more than {_MOST_PARTS} objects and arrays, or {_MOST_VALUES} values")


async def _checked(text: str, model: LocalModel, path: str) -> Grammar:
    try:
        return await model.grammar(text)
    except GrammarError as error:
        raise _cannot(path, error) from None


def _cannot(path: str, error: Exception | str) -> ApiError:
    return invalid(f"Invalid schema in '{path}': {error}.", path, "invalid_json_schema")
