"""Arguments written with a tag for each, as Qwen3-Coder writes them, as rules of a grammar."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from headgate.engine.text.written import Schema, json_value, literal

_SAYS_NOTHING = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema", "$id"}
)
_OF_ARGUMENTS = _SAYS_NOTHING | {"type", "properties", "required", "additionalProperties", "$defs", "definitions"}
_OF_TEXT = _SAYS_NOTHING | {"type", "enum", "const", "minLength", "maxLength"}
_END = "</parameter>"
_CLOSE = literal(f"\n{_END}\n")
_NO_END = r"~/(.|\n)*<\/parameter>(.|\n)*/"


class FormError(ValueError):
    """A schema that tagged arguments cannot be held to. The message is for the caller of the API."""


def tagged_arguments(rule: str, schema: Schema) -> Iterator[str]:
    """Rules, the first one named `rule`, of the arguments that follow an object's schema, in its order.

    Values of the type string are plain text up to the closing tag, all others JSON, as `TaggedCall` reads them.

    Raises:
        FormError: the schema asks for more than these rules can say.
    """
    _only(schema, _OF_ARGUMENTS, "arguments")
    required = schema.get("required", ())
    properties = {**schema.get("properties", {})}
    for key in required:
        properties.setdefault(key, {})
    if not properties and schema.get("additionalProperties") is not False:
        yield f"{rule}: {rule}_any*"
        yield f'{rule}_any: "<parameter=" /[A-Za-z_][A-Za-z0-9_-]*/ ">\\n" {rule.upper()}_TEXT'
        yield f"{rule.upper()}_TEXT: {_text({})}"
        return
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    names = {key: f"{rule}_{at}" for at, key in enumerate(properties)}
    yield f"{rule}: " + " ".join(name if key in required else f"{name}?" for key, name in names.items())
    for key, value in properties.items():
        name = names[key]
        if not key or key != key.strip() or ">" in key:
            raise FormError(f"the property {json.dumps(key)} cannot be written as a tag")
        if value is False:
            raise FormError(f"the property {json.dumps(key)} can have no value")
        head = literal(f"<parameter={key}>\n")
        if isinstance(value, Mapping) and value.get("type") == "string":
            yield f"{name}: {head} {name.upper()}"
            yield f"{name.upper()}: {_text(value)}"
        else:
            yield f"{name}: {head} {name}_value {_CLOSE}"
            yield f"{name}_value: %json {json_value({**shared, **(value if isinstance(value, Mapping) else {})})}"


def _text(schema: Schema) -> str:
    """A terminal: the text and the tag that closes it. As two, the text would swallow the beginning of the tag."""
    _only(schema, _OF_TEXT, "a parameter that is plain text")
    if "const" in schema or "enum" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        if not all(isinstance(value, str) and _END not in value for value in values):
            raise FormError(f"a parameter that is plain text has the values {json.dumps(values)}")
        return f"({' | '.join(map(literal, values))}) {_CLOSE}"
    least, most = schema.get("minLength", 0), schema.get("maxLength", "")
    return f"(/(.|\\n){{{least},{most}}}/ & {_NO_END}) {_CLOSE}"


def _only(schema: Schema, known: frozenset[str], of: str) -> None:
    unknown = [key for key in schema if key not in known]
    if unknown:
        raise FormError(f"{of} cannot be held to '{unknown[0]}' in the way this model writes calls")
