"""Bytes to typed requests. What msgspec says of a bad body becomes OpenAI's wording, with the value that was given."""

from __future__ import annotations

import difflib
import re
import threading
from functools import cache
from typing import Any, TypeVar

import msgspec

from headgate.gateway.wire.errors import ApiError, invalid

T = TypeVar("T", bound=msgspec.Struct)

_PATH = re.compile(r" - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`$|^(?P<bare>)$")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.*?)`(?: - at|$)", re.DOTALL)
_TYPE = re.compile(r"Expected `(?P<want>[^`]+)`, got `(?P<got>[^`]+)`")
_LENGTH = re.compile(r"Expected `(?P<what>[^`]+)` of length (?P<op>>=|<=) (?P<bound>\d+)")
_RANGE = re.compile(r"Expected `(?P<what>[^`]+)` (?P<op>>=|<=|>|<) (?P<bound>\S+)")
_ENUM = re.compile(r"Invalid enum value (?P<value>.+?)(?: - at|$)", re.DOTALL)

_MAKING = threading.Lock()
_SHOWN = 200
"""Characters of a long message of msgspec that are read, at its beginning and at its end."""
_HOMES = {"messages": "/v1/chat/completions", "prompt": "/v1/completions", "input": "/v1/responses or /v1/embeddings"}
"""Endpoints that a body sent to another one may be meant for, by what it asks."""
_WORDS = {"int": "an integer", "float": "a number", "str": "a string", "bool": "a boolean", "array": "an array",
          "object": "an object", "null": "null"}  # fmt: skip


def decode(body: bytes, kind: type[T]) -> T:
    """The typed request in `body`, or ApiError 400 naming the field, the value and what would be accepted."""
    try:
        wire: T = decoder_of(kind).decode(body)
        return wire
    except msgspec.ValidationError as error:
        raise _explain(str(error), body, kind) from None
    except UnicodeDecodeError:
        raise invalid("The request body is not valid UTF-8.", code="invalid_json") from None
    except RecursionError:
        raise invalid("The request body is nested too deeply.", code="invalid_json") from None
    except msgspec.DecodeError as error:
        if not body.strip():
            raise invalid("The request body is empty. Send a JSON object.", code="invalid_json") from None
        raise invalid(f"We could not parse the JSON body of your request: {error}.", code="invalid_json") from None


@cache
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """Kept, as making one takes far longer than using it. Whoever has msgspec convert to a type asks for this first.

    One is made at a time: long bodies are read in threads, and msgspec gives a thread what another one is still making
    of the same class. With that the first requests that came together ended the process, with a segmentation fault.
    """
    with _MAKING:
        return msgspec.json.Decoder(kind)


def nearest(name: str, known: list[str], alike: float = 0.6) -> str:
    """` Did you mean 'x'?` for the closest known name, or an empty string. `alike`: the least of 1 that they share."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=alike)
    return f" Did you mean '{close[0]}'?" if close else ""


def _explain(text: str, body: bytes, kind: type[msgspec.Struct]) -> ApiError:
    """Rewrite one validation message of msgspec."""
    if len(text) > 2 * _SHOWN:
        # It repeats what the client wrote, which may be all of a body.
        text = f"{text[:_SHOWN]}…{text[-_SHOWN:]}"
    located = _PATH.search(text)
    # msgspec writes `[...]` for whichever value of a mapping it was; the mapping is what the client wrote.
    path = (located.group("path") or "").lstrip(".").replace("[...]", "") if located else ""
    if found := _MISSING.search(text):
        param = _join(path, found.group("field"))
        return invalid(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")
    if found := _UNKNOWN.search(text):
        param = _join(path, found.group("field"))
        return invalid(
            f"Unknown parameter: '{param}'.{_hint(found.group('field'), path, kind)}", param, "unknown_parameter"
        )
    if not path:
        got = _TYPE.search(text)
        what = got.group("got") if got else "something else"
        return invalid(f"The request body must be a JSON object, but it is {_word(what)}.", code="invalid_json")
    wrong = _explain_value(text, path, _value_at(body, path))
    if located is not None and located.group("key"):
        message = wrong.message.replace("Invalid '", "Invalid key in '", 1)
        return invalid(message, wrong.param, wrong.code)
    return wrong


def _explain_value(text: str, path: str, value: str) -> ApiError:
    """A field that is there with a wrong value."""
    if found := _ENUM.search(text):
        return invalid(f"Invalid value for '{path}': {found.group('value')} is not supported.", path, "invalid_value")
    if found := _TYPE.search(text):
        want = " or ".join(_word(w) for w in found.group("want").split(" | ") if w != "null") or "null"
        message = f"Invalid type for '{path}': expected {want}, but got {_word(found.group('got'))} instead."
        return invalid(message, path, "invalid_type")
    if found := _LENGTH.search(text):
        what = {"array": "array", "str": "string"}.get(found.group("what"), found.group("what"))
        least = found.group("op") == ">="
        bound = found.group("bound")
        if least and bound == "1":
            message = f"Invalid '{path}': empty {what}. Expected at least 1 {_item(what)}."
            return invalid(message, path, f"empty_{what}")
        side, code = ("at least", "below_min_length") if least else ("at most", "above_max_length")
        return invalid(f"Invalid '{path}': expected {side} {bound} {_item(what)}s.", path, f"{what}_{code}")
    if found := _RANGE.search(text):
        what = "integer" if found.group("what") == "int" else "decimal"
        below = found.group("op").startswith(">")
        side, code = ("below minimum", "below_min_value") if below else ("above maximum", "above_max_value")
        bound = found.group("bound").removesuffix(".0")
        message = (
            f"Invalid '{path}': {what} {side} value. Expected a value {found.group('op')} {bound}, but got {value}."
        )
        return invalid(message, path, f"{what}_{code}")
    return invalid(f"Invalid '{path}': {text.split(' - at')[0]}.", path, "invalid_value")


def _hint(name: str, path: str, kind: type[msgspec.Struct]) -> str:
    """What is known where an unknown name stands: the nearest one, else all within a part of the body."""
    if not path and name in _HOMES:
        return f" It is a parameter of {_HOMES[name]}."
    inner = _struct_at(_described(kind), re.findall(r"[^.\[\]]+|\[", path))
    known = [] if inner is None else [field.encode_name for field in inner.fields]
    if near := nearest(name, known):
        return near
    return f" Supported in '{path}': {', '.join(map(repr, known))}." if path and known else ""


@cache
def _described(kind: type[msgspec.Struct]) -> msgspec.inspect.Type:
    """Kept, as it takes milliseconds."""
    return msgspec.inspect.type_info(kind)


def _struct_at(found: msgspec.inspect.Type, steps: list[str]) -> msgspec.inspect.StructType | None:
    """The object that a path such as `tools[0]` leads to; None where one of several types is meant."""
    if isinstance(found, msgspec.inspect.Metadata):
        return _struct_at(found.type, steps)
    if isinstance(found, msgspec.inspect.UnionType):
        return next((inner for part in found.types if (inner := _struct_at(part, steps)) is not None), None)
    if isinstance(found, msgspec.inspect.ListType) and steps[:1] == ["["]:
        return _struct_at(found.item_type, steps[2:])
    if not isinstance(found, msgspec.inspect.StructType):
        return None
    if not steps:
        return found
    return next((_struct_at(field.type, steps[1:]) for field in found.fields if field.encode_name == steps[0]), None)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _word(name: str) -> str:
    return _WORDS.get(name, name)


def _item(what: str) -> str:
    return {"array": "element", "object": "key"}.get(what, "character")


def _value_at(body: bytes, path: str) -> str:
    """The value a path such as `stop[0]` or `messages[1].role` leads to, shortened for a message."""
    try:
        value: Any = msgspec.json.decode(body)
        for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
            value = value[name] if name else value[int(index)]
    except (msgspec.DecodeError, LookupError, TypeError, RecursionError):
        return "another value"
    shown = msgspec.json.encode(value).decode()
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
