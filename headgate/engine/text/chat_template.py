"""Chat messages to a prompt, by the model's own Jinja template, as `transformers` renders it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Const, Getattr, Getitem, Name, Node, Scope, Template, Test
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headgate.engine.text.folder import TokenizerError, TokenizerFolder
from headgate.engine.text.harmony import writes_harmony
from headgate.engine.text.harmony_turns import harmony_tools, harmony_turns

_PROBE = "a text"
_SHORT_ID = re.compile("[A-Za-z0-9]{9}")


class NoChatTemplate(ValueError):
    """The model has no chat template."""


class TemplateError(ValueError):
    """The template refuses these messages, or cannot render them. The message is for the caller of the API."""


def call_arguments(text: str) -> Any:
    """A call's arguments as templates are to see them, which write them as JSON themselves: what is no JSON object
    stays as it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


class _Generation(Extension):
    """`{% generation %}` marks what an assistant wrote, for training; a prompt just contains it."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance attribute

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        return Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class ChatTemplate:
    """The compiled chat templates of one model. Thread-safe."""

    def __init__(self, templates: Mapping[str, str], special_tokens: Mapping[str, str], source: str) -> None:
        """Compile templates.

        Args:
            templates: by name; empty for a model without one.
            special_tokens: variables such as "bos_token" that templates may use.
            source: where the templates come from, for error messages.

        Raises:
            TokenizerError: a template is not valid Jinja.
        """
        environment = _environment()
        self._special_tokens = dict(special_tokens)
        self._source = source
        self._templates: dict[str, jinja2.Template] = {}
        self._sources = dict(templates)
        self._variables: dict[str, set[str]] = {}
        self._knows_null: dict[str, bool] = {}
        self._parts: dict[str, bool] = {}
        for name, text in templates.items():
            try:
                self._templates[name] = environment.from_string(text)
                tree = environment.parse(text)
                self._variables[name] = meta.find_undeclared_variables(tree)
                self._knows_null[name] = _asks_for_null_content(tree)
            except jinja2.TemplateSyntaxError as error:
                raise TokenizerError(
                    f"{source}: chat template {name!r}, line {error.lineno}: {error.message}"
                ) from error

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate:
        """Read the templates of a Hugging Face folder. A folder without one loads, but renders nothing.

        Raises:
            TokenizerError: a file or a template is damaged.
        """
        files = TokenizerFolder.read(folder)
        return cls(files.templates, files.special_tokens, str(folder))

    def source(self, *, with_tools: bool) -> str:
        """The template that such a conversation is rendered by; empty where there is none."""
        name = self._name(with_tools=with_tools)
        return "" if name is None else self._sources[name]

    def reads(self, variable: str, *, with_tools: bool) -> bool:
        """Whether a variable can make a difference to such a conversation's prompt."""
        name = self._name(with_tools=with_tools)
        return name is not None and variable in self._variables[name]

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        pictures: bool = False,
        **extra: Any,
    ) -> str:
        """The prompt for `messages`, special tokens spelled out: encode it without adding any.

        Args:
            messages: OpenAI's, as plain JSON values. Content may be a string, null, or a list of text parts. Templates
                see a string, or null beside calls if they ask for that.
            tools: OpenAI's tool definitions.
            add_generation_prompt: end with the beginning of the assistant's answer.
            pictures: lists may have parts of type "image" too; a template sees a list that has one as it is.
            extra: further variables of the template, such as `enable_thinking`.

        Raises:
            NoChatTemplate: the model has none.
            TemplateError: the template refused or failed, or a content part is not text.
        """
        name = self._chosen(with_tools=tools is not None)
        template, null = self._templates[name], self._knows_null[name]
        turns: Sequence[Mapping[str, Any]]
        turns = [
            _with_parts(index, message)
            if pictures and _has_picture(message)
            else _with_plain_content(index, message, null=null)
            for index, message in enumerate(messages)
        ]
        if self._reads_parts(name):
            turns = [_with_text_part(turn) for turn in turns]
        if writes_harmony(self._sources[name]):
            turns, tools = harmony_turns(turns), None if tools is None else harmony_tools(tools)
        variables = {
            **self._special_tokens,
            **extra,
            "messages": turns,
            "tools": None if tools is None else list(tools),
            "documents": extra.get("documents"),
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return _rendered(template, variables)
        except TemplateError:
            short = [_with_short_ids(message) for message in variables["messages"]]
            if short != variables["messages"]:
                # Mistral's take no ids of calls but nine letters and digits, and another model may have called before.
                with suppress(TemplateError):
                    return _rendered(template, {**variables, "messages": short})
            raise

    def _reads_parts(self, name: str) -> bool:
        """Whether the template loses a text that is no list of parts, as some of models that see do."""
        known = self._parts.get(name)
        if known is None:
            shown = [self._shows(name, content) for content in (_PROBE, [{"type": "text", "text": _PROBE}])]
            known = self._parts[name] = shown == [False, True]
        return known

    def _shows(self, name: str, content: object) -> bool:
        message = {"role": "user", "content": content}
        variables = {**self._special_tokens, "messages": [message], "tools": None, "documents": None}
        try:
            return _PROBE in _rendered(self._templates[name], {**variables, "add_generation_prompt": True})
        except TemplateError:
            return False

    def _name(self, *, with_tools: bool) -> str | None:
        if with_tools and "tool_use" in self._templates:
            return "tool_use"
        return "default" if "default" in self._templates else None

    def _chosen(self, *, with_tools: bool) -> str:
        if not self._templates:
            raise NoChatTemplate(f"{self._source} has no chat template; the model serves completions only")
        name = self._name(with_tools=with_tools)
        if name is None:
            names = ", ".join(sorted(self._templates))
            raise NoChatTemplate(f"{self._source} has chat templates {names}, but none named default")
        return name


def _rendered(template: jinja2.Template, variables: Mapping[str, Any]) -> str:
    try:
        try:
            return template.render(variables)
        except TypeError:
            # Most templates write calls' arguments as JSON themselves; some, as DeepSeek's, join texts.
            texts = [_with_arguments_as_text(message) for message in variables["messages"]]
            return template.render({**variables, "messages": texts})
    except TemplateError:
        raise
    except Exception as error:  # a template can fail in any way a program can
        raise TemplateError(f"the chat template cannot render these messages: {error}") from error


def _environment() -> jinja2.Environment:
    """Jinja2 as model templates expect it. Sandboxed: a template comes with a model, from anywhere."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the HTML escapes of Jinja2's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _with_arguments_as_text(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message with the arguments of its calls as JSON texts."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    written = []
    for call in calls:
        function = call["function"]
        arguments = function["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        written.append({**call, "function": {**function, "arguments": text}})
    return {**message, "tool_calls": written}


def _with_short_ids(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message with ids of calls as Mistral's templates take them: equal ones stay equal, in every request."""
    short = dict(message)
    if "tool_call_id" in short:
        short["tool_call_id"] = _short_id(str(short["tool_call_id"]))
    if short.get("tool_calls"):
        short["tool_calls"] = [{**call, "id": _short_id(str(call.get("id")))} for call in short["tool_calls"]]
    return short


def _short_id(given: str) -> str:
    if _SHORT_ID.fullmatch(given):
        return given
    return blake2b(given.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()[:9]


def _asks_for_null_content(tree: Template) -> bool:
    """Whether a template asks if a content is none, as DeepSeek's do to know a message that only calls."""
    for test in tree.find_all(Test):
        match test:
            case Test(
                name="none",
                node=Getattr(attr="content") | Getitem(arg=Const(value="content")) | Name(name="content"),
            ):
                return True
    return False


def _has_picture(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list | tuple) and any(_is_picture(part) for part in content)


def _is_picture(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "image"


def _with_parts(index: int, message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with its parts as they are, of which those that are no pictures must be texts."""
    texts = [part for part in message["content"] if not _is_picture(part)]
    _with_plain_content(index, {**message, "content": texts}, null=False)
    return {**message, "content": [{"type": "image"} if _is_picture(p) else dict(p) for p in message["content"]]}


def _with_text_part(turn: Mapping[str, Any]) -> Mapping[str, Any]:
    content = turn["content"]
    return {**turn, "content": [{"type": "text", "text": content}]} if isinstance(content, str) and content else turn


def _with_plain_content(index: int, message: Mapping[str, Any], *, null: bool) -> dict[str, Any]:
    """The message with its content as one string: templates of text models know nothing else.

    `null`: but for none in a message that only calls, which a template that asks for it would not write otherwise.
    """
    content = message.get("content")
    if null and not content and message.get("tool_calls"):
        return {**message, "content": None}
    if isinstance(content, str):
        return dict(message)
    if content is not None and not isinstance(content, list | tuple):
        raise TemplateError(f"messages[{index}].content is {content!r}; a string or a list of text parts is accepted")
    texts = []
    for place, part in enumerate(content or ()):
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise TemplateError(
                f"messages[{index}].content[{place}] is of type {kind!r}; parts of type 'text' are accepted"
            )
        texts.append(part["text"])
    return {**message, "content": "".join(texts)}
