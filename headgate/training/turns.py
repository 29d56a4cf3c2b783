"""Messages and tools of training data in the form in which serving hands them to a chat template.

A template may write the same conversation in several ways: a call's arguments as an object or as a text in quotes, a
turn of the role `developer` that it does not know. What is learned is what a gateway would send.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.engine.text.chat_template import call_arguments

_UNREAD = ("refusal", "annotations", "parsed", "audio", "function_call", "tool_calls")
"""Of messages of OpenAI; no template is given them, calls only where there are some: that of Llama asks for one."""


def turn(path: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of OpenAI's form as chat templates are given it.

    Keys that OpenAI's messages do not have stay: a template may read an assistant's thoughts there.
    Raises `ValueError` naming the field, by its `path`, that is not of that form.
    """
    role, calls = message.get("role"), message.get("tool_calls")
    if not isinstance(role, str) or not role:
        raise ValueError(f"{path}.role is {role!r}; a string such as 'user' is accepted")
    content = _content(path, message)
    if content is None and not calls:
        raise ValueError(f"{path}.content is missing; a string is accepted")
    fields = {key: value for key, value in message.items() if value is not None and key not in _UNREAD}
    fields |= {"role": "system" if role == "developer" else role, "content": content}
    if calls:
        fields["tool_calls"] = _calls(f"{path}.tool_calls", calls)
    return fields


def tool(path: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A tool of OpenAI's form, or the function in it alone, as chat templates are given it.

    Raises `ValueError` naming the field, by its `path`, that is not of that form.
    """
    function = _function(path, given)
    fields = {"name": function["name"]}
    if function.get("description") is not None:
        fields["description"] = function["description"]
    fields["parameters"] = function.get("parameters") or {"type": "object", "properties": {}}
    return {"type": "function", "function": fields}


def _content(path: str, message: Mapping[str, Any]) -> str | None:
    content = message.get("content")
    if content is None:
        content = message.get("refusal")
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError(f"{path}.content is {content!r}; a string or a list of text parts is accepted")
    texts: list[str] = []
    for place, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        text = part.get(kind) if isinstance(part, dict) and kind in ("text", "refusal") else None
        if not isinstance(text, str):
            raise ValueError(f"{path}.content[{place}] is of type {kind!r}; parts of type 'text' are accepted")
        texts.append(text)
    return "\n".join(texts)


def _calls(path: str, calls: object) -> list[dict[str, Any]]:
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise ValueError(f"{path} is {str(calls)[:60]!r}; a list of objects is accepted")
    return [_call(f"{path}[{place}]", call) for place, call in enumerate(calls)]


def _call(path: str, call: Mapping[str, Any]) -> dict[str, Any]:
    function = _function(path, call)
    arguments = function.get("arguments")
    if not isinstance(arguments, str | dict):
        raise ValueError(f"{path}.function.arguments is {arguments!r}; a JSON object, also as a string, is accepted")
    read = call_arguments(arguments) if isinstance(arguments, str) else arguments
    named = {"id": call["id"]} if call.get("id") is not None else {}
    return {**named, "type": "function", "function": {"name": function["name"], "arguments": read}}


def _function(path: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    function = given.get("function", given)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ValueError(f"{path} is {str(given)[:60]!r}; a function with a string 'name' is accepted")
    return function
