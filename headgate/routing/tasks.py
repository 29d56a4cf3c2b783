"""The task classes and their example prompts: those that ship, and those that a team adds in YAML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import get_args

import yaml

from headgate.routing.types import AnswerFormat, RouteFeatures, Tier, Vector

UNKNOWN = "unknown"
"""Where nothing fits. It has examples too: key mashing, lists of loose words."""
BACKGROUND = "background"
"""What a client asks on its own account, such as a title for a conversation. Told by patterns, not by examples."""
_TIERS: tuple[Tier, ...] = get_args(Tier)
_FORMATS: tuple[AnswerFormat, ...] = get_args(AnswerFormat)
_CLASS_FIELDS = ("name", "tier", "examples")
_EXAMPLE_FIELDS = ("text", "system", "format", "turns")
_INT = "tag:yaml.org,2002:int"
_STR = "tag:yaml.org,2002:str"


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt of a class, with what came along with it."""

    text: str
    system: str = ""
    format: AnswerFormat = "text"
    turns: int = 1

    def features(self, vector: Vector | None = None) -> RouteFeatures:
        """What the router would see of it."""
        return RouteFeatures(self.text, vector, system=self.system, format=self.format, turns=self.turns)


@dataclass(frozen=True, slots=True)
class Task:
    """One class of prompts."""

    name: str
    tier: Tier
    """The tier that answers it well enough by default."""
    examples: tuple[Example, ...]


def load_tasks(more: Sequence[Path] = ()) -> tuple[Task, ...]:
    """The classes that ship, then those of further files, then `unknown` and `background`.

    A file reads `classes: [{name: contract_review, tier: large, examples: ["Does clause 4 ...", ...]}]`. An example is
    a text, or `{text: ..., system: ..., format: text|json_object|json_schema, turns: 3}`.

    Raises:
        ValueError: a file cannot be read, or a class has no name, no examples, a tier that does not exist, or a name
            that is taken; the message tells file, line and place.
    """
    shipped = files("headgate.routing") / "data" / "classes.yaml"
    tasks: dict[str, Task] = {}
    unknown: tuple[Example, ...] = ()
    for source in (shipped, *more):
        root = _root(source)
        fields = _mapping(root, ("classes", "unknown") if source is shipped else ("classes",))
        for at, node in enumerate(_items(fields.get("classes"), root, "classes", "one class")):
            place = f"classes[{at}]"
            task = _task(_Node(node, root.source, place))
            if task.name in tasks:
                raise _Node(node, root.source, f"{place}.name").refuse(
                    f"is {task.name!r}, which is taken; any other name is accepted"
                )
            tasks[task.name] = task
        if source is shipped:
            unknown = _examples(fields["unknown"], root, "unknown")
    return (*tasks.values(), Task(UNKNOWN, "large", unknown), Task(BACKGROUND, "small", ()))


@dataclass(frozen=True, slots=True)
class _Node:
    """A value of a YAML file and where it stands."""

    node: yaml.Node
    source: str
    place: str

    def refuse(self, why: str) -> ValueError:
        line = self.node.start_mark.line + 1
        return ValueError(f"{self.source}:{line}: {self.place or 'the file'} {why}")

    def text(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag != _STR or not self.node.value.strip():
            raise self.refuse(f"is {_shown(self.node)}; a text is accepted")
        value: str = self.node.value
        return value


def _root(source: Path | Traversable) -> _Node:
    try:
        text = source.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{source}: the task classes cannot be read: {error}") from error
    if node is None:
        raise ValueError(f"{source}:1: the file is empty; a list `classes` is accepted")
    return _Node(node, str(source), "")


def _mapping(value: _Node, known: Sequence[str]) -> dict[str, yaml.Node]:
    if not isinstance(value.node, yaml.MappingNode):
        raise value.refuse(f"is {_shown(value.node)}; a mapping with {', '.join(known)} is accepted")
    fields: dict[str, yaml.Node] = {}
    for key, item in value.node.value:
        if key.value not in known:
            place = f"{value.place}.{key.value}".lstrip(".")
            raise _Node(key, value.source, place).refuse(f"is not known; {', '.join(known)} are accepted")
        if key.value in fields:
            raise _Node(key, value.source, f"{value.place}.{key.value}".lstrip(".")).refuse("is given twice")
        fields[key.value] = item
    return fields


def _items(node: yaml.Node | None, parent: _Node, place: str, least: str) -> list[yaml.Node]:
    if node is None:
        raise parent.refuse(f"has no {place.rpartition('.')[2]}; a list with at least {least} is accepted")
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        raise _Node(node, parent.source, place).refuse(f"is {_shown(node)}; a list with at least {least} is accepted")
    items: list[yaml.Node] = node.value
    return items


def _task(value: _Node) -> Task:
    fields = _mapping(value, _CLASS_FIELDS)
    for field in ("name", "tier"):
        if field not in fields:
            raise value.refuse(f"has no {field}; {', '.join(_CLASS_FIELDS)} are needed")
    named = _Node(fields["name"], value.source, f"{value.place}.name")
    name = named.text()
    if name in (UNKNOWN, BACKGROUND):
        raise named.refuse(f"is {name!r}, which is kept for the router's own use; any other name is accepted")
    tier = next((tier for tier in _TIERS if tier == fields["tier"].value), None)
    if tier is None:
        raise _Node(fields["tier"], value.source, f"{value.place}.tier").refuse(
            f"is {_shown(fields['tier'])}; {' or '.join(_TIERS)} is accepted"
        )
    return Task(name, tier, _examples(fields.get("examples"), value, f"{value.place}.examples"))


def _examples(node: yaml.Node | None, parent: _Node, place: str) -> tuple[Example, ...]:
    items = _items(node, parent, place, "one text")
    return tuple(_example(_Node(item, parent.source, f"{place}[{at}]")) for at, item in enumerate(items))


def _example(value: _Node) -> Example:
    if not isinstance(value.node, yaml.MappingNode):
        return Example(value.text())
    fields = {
        key: _Node(node, value.source, f"{value.place}.{key}") for key, node in _mapping(value, _EXAMPLE_FIELDS).items()
    }
    if "text" not in fields:
        raise value.refuse("has no text; a text is needed")
    answer: AnswerFormat = "text"
    turns = 1
    if "format" in fields:
        found = next((name for name in _FORMATS if name == fields["format"].node.value), None)
        if found is None:
            raise fields["format"].refuse(
                f"is {_shown(fields['format'].node)}; one of {', '.join(_FORMATS)} is accepted"
            )
        answer = found
    if "turns" in fields:
        given = fields["turns"].node
        if given.tag != _INT or not given.value.isdigit() or int(given.value) < 1:
            raise fields["turns"].refuse(f"is {_shown(given)}; a number from 1 is accepted")
        turns = int(given.value)
    return Example(fields["text"].text(), fields["system"].text() if "system" in fields else "", answer, turns)


def _shown(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return repr(node.value) if node.tag == _STR else node.value or "empty"
    size = len(node.value)
    return f"a {'list' if isinstance(node, yaml.SequenceNode) else 'mapping'} of {size}"
