"""Function calls: a request and the functions that are given, answered with one call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headgate.engine.demo.tasks.call_functions import Function, Parameter, Value
from headgate.engine.demo.tasks.call_functions_home import HOME
from headgate.engine.demo.tasks.call_functions_plans import PLANS
from headgate.engine.demo.tasks.draw import Draw, held_templates
from headgate.engine.demo.tasks.sample import Task

FUNCTIONS = PLANS + HOME
NO_FUNCTION = "None of the given functions can do that."
_FRAMES = (
    "{body}.",
    "{body}",
    "Please {body}.",
    "Can you {body}?",
    "Could you {body}?",
    "Could you please {body}?",
    "{body}, please.",
    "I want you to {body}.",
    "I would like you to {body}.",
    "Would you {body}?",
    "Hi, please {body}.",
    "Hello, can you {body}?",
    "Can you please {body}?",
    "I need you to {body}.",
    "Hi, could you {body}?",
    "Hello, please {body}.",
)
_MISFIT = (0.0, 0.08, 0.15, 0.15)
"""By level, how often no given function fits."""
_ALIKE = 0.4
"""How often the other functions are from the group of the wanted one."""


def calls(draw: Draw) -> Task:
    """Level 1: one function, one or two arguments; 2: two functions; 3: three, two or three arguments, or none fits.

    Level 4: four functions.
    """
    least, most = ((1, 2), (1, 3), (2, 3), (2, 3))[draw.level - 1]
    wanted = draw.pick([known for known in FUNCTIONS if _fits(known, least, most)])
    used = _used(draw, wanted, least, most)
    values = _values(draw, used)
    misfit = draw.chance(_MISFIT[draw.level - 1])
    others = [known for known in FUNCTIONS if known.group != wanted.group]
    if draw.level > 1 and not misfit and draw.chance(_ALIKE):
        near = [known for known in FUNCTIONS if known.group == wanted.group and known is not wanted]
        others = near if len(near) >= draw.level - 1 else near + others[:3]
    chosen = draw.some(others, draw.level if misfit else draw.level - 1)
    offered = draw.shuffled(chosen if misfit else [wanted, *chosen])
    tools: list[Mapping[str, Any]] = []
    answer = NO_FUNCTION
    for known in offered:
        name = f"{draw.pick(known.verbs)}_{draw.pick(known.nouns)}"
        names = _names(draw, known)
        tools.append(_schema(known, name, names))
        if known is wanted:
            arguments = {names[key]: values[key] for key in names if key in values}
            answer = f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
    signatures = " ".join(
        f"{tool['function']['name']}{[*tool['function']['parameters']['properties']]}" for tool in tools
    )
    asked = f"{wanted.description} {json.dumps(values, sort_keys=True)}"
    return Task(_request(draw, wanted, used, values), answer, f"{asked}|{signatures}", tuple(tools))


def tool_request(draw: Draw) -> str:
    """A request as in `calls`, for a conversation without functions."""
    wanted = draw.pick(FUNCTIONS)
    used = _used(draw, wanted, 1, 3)
    return _request(draw, wanted, used, _values(draw, used))


def _fits(known: Function, least: int, most: int) -> bool:
    required = sum(not parameter.clause for parameter in known.parameters)
    return len(known.parameters) >= least and required <= most


def _used(draw: Draw, wanted: Function, least: int, most: int) -> list[Parameter]:
    """The required parameters, and the optional one where the number of arguments allows or demands it."""
    required = [parameter for parameter in wanted.parameters if not parameter.clause]
    optional = [parameter for parameter in wanted.parameters if parameter.clause]
    if not optional or len(required) >= most or (len(required) >= least and draw.chance(0.5)):
        return required
    return required + optional


def _values(draw: Draw, used: list[Parameter]) -> dict[str, Value]:
    """A value for every parameter, all different: the answer must not depend on which of two equals is meant."""
    values: dict[str, Value] = {}
    for parameter in used:
        value = parameter.make(draw)
        while value in values.values():
            value = parameter.make(draw)
        values[parameter.key] = value
    return values


def _names(draw: Draw, known: Function) -> dict[str, str]:
    """By key, the names that the parameters have here, in the order of the schema."""
    order = [*known.parameters]
    if draw.chance(0.25):
        order.reverse()
    names: dict[str, str] = {}
    for parameter in order:
        names[parameter.key] = draw.pick([name for name in parameter.names if name not in names.values()])
    return names


def _schema(known: Function, name: str, names: dict[str, str]) -> Mapping[str, Any]:
    by_key = {parameter.key: parameter for parameter in known.parameters}
    properties: dict[str, dict[str, Any]] = {}
    for key, shown in names.items():
        properties[shown] = {"type": by_key[key].type}
        if by_key[key].options:
            properties[shown]["enum"] = [*by_key[key].options]
    required = [names[key] for key in names if not by_key[key].clause]
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": known.description, "parameters": parameters}}


def _request(draw: Draw, wanted: Function, used: list[Parameter], values: dict[str, Value]) -> str:
    body = draw.style(held_templates(wanted.requests, draw.split))
    end = body[-1] if body[-1] in ".?" else ""
    imperative = body[0].islower()
    body = body.removesuffix(end) + "".join(parameter.clause for parameter in used) + end
    text = body.format(**values)
    if imperative:
        text = draw.phrase(_FRAMES).format(body=text)
    if text[0].islower() != draw.styled(0.12) and text[1].islower():
        text = (text[0].upper() if text[0].islower() else text[0].lower()) + text[1:]
    return text
