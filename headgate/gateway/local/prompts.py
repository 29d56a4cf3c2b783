"""From a request to the tokens a model reads."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from headgate.engine.front.local import LocalModel
from headgate.engine.text.chat_template import NoChatTemplate, TemplateError
from headgate.engine.text.pictures import Picture as Decoded
from headgate.engine.text.pictures import Sight
from headgate.gateway.edge.long_bodies import LONG
from headgate.gateway.local.pictures import PictureDecoder, Shown
from headgate.gateway.road.attachments import Picture
from headgate.gateway.road.request import ADAPTIVE, ChatRequest, Message
from headgate.gateway.wire.body_weight import is_heavier
from headgate.gateway.wire.errors import ApiError, invalid, unsupported

_NUMBERED = re.compile(r"pictures\[(\d+)\]")
_SWITCH, _LEVEL = "enable_thinking", "reasoning_effort"
_MOST_VALUES = 100_000
"""In the arguments of one call, as `is_heavier` counts: decoding them lets no other thread go on."""
_MOST = ("high", "xhigh", "max")
_OFF, _USUAL = ("none", "minimal"), "medium"
_LEVELS = {"minimal": "low", "low": "low", ADAPTIVE: "medium", "medium": "medium", **dict.fromkeys(_MOST, "high")}
"""What models that speak harmony were taught, by what is asked; they always think."""


class Prompt(msgspec.Struct, frozen=True):
    """What a model reads: tokens, and the pictures that some of them stand for."""

    tokens: tuple[int, ...]
    shown: Shown | None = None


async def prompt_of(
    request: ChatRequest, model: LocalModel, decoder: PictureDecoder | None = None, most: int | None = None
) -> Prompt:
    """The prompt of a request that has nothing beside text but, where there is a `decoder`, pictures as data.

    ApiError 400 where the model's chat template refuses the conversation, or it cannot see a picture. PromptTooLong
    where it would have more than `most` tokens, as far as its length tells.
    """
    if isinstance(request.prompt, tuple):
        return Prompt(request.prompt)
    if request.prompt is not None:
        return Prompt(await model.encode(request.prompt, most=most))
    extra = _thinking(request, model)
    messages = await _messages(request)
    tools = [tool.for_template() for tool in request.callable_tools] or None
    pictures = [shown for shown in request.attachments if isinstance(shown, Picture)]
    try:
        if decoder is not None and pictures:
            look = partial(_looked, model, messages, tools, most, extra)
            return Prompt(*await decoder.show(pictures, look))
        return Prompt(await model.render_chat(messages, tools, most=most, **extra))
    except NoChatTemplate:
        message = f"The model '{model.info.name}' has no chat template; use /v1/completions."
        raise invalid(message, "messages", "no_chat_template") from None
    except TemplateError as error:
        given = [p.place for m in request.messages if m.role == "tool" for p in m.parts if isinstance(p, Picture)]
        if given:
            message = (
                f"'{given[0]}': the chat template of '{model.info.name}' does not show what functions give: {error}"
            )
            raise unsupported(given[0], message) from None
        message = f"The model's chat template refuses these messages: {error}"
        raise invalid(message, "messages", "invalid_messages") from None
    except ValueError as error:
        raise _unseen(error, pictures, model) from None


async def _looked(
    model: LocalModel,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    most: int | None,
    extra: Mapping[str, Any],
    pictures: Sequence[Decoded],
) -> tuple[tuple[int, ...], tuple[Sight, ...]]:
    return await model.look(messages, tools, pictures, most=most, **extra)


async def _messages(request: ChatRequest) -> list[dict[str, Any]]:
    """As chat templates are to see them, which read the arguments of calls: ApiError 400 where those hold too much."""
    calls = [call for message in request.messages for call in message.tool_calls]

    def read() -> list[dict[str, Any]]:
        for call in calls:
            if is_heavier(call.arguments.encode("utf-8", "surrogatepass"), _MOST_VALUES):
                message = (
                    f"The arguments of a call of '{call.name[:80]}' hold more than {_MOST_VALUES} objects, arrays and "
                    "strings."
                )
                raise invalid(message, "messages", "invalid_value")
        return [_turn(message) for message in request.messages]

    return await asyncio.to_thread(read) if sum(len(call.arguments) for call in calls) > LONG else read()


def _unseen(error: ValueError, pictures: Sequence[Picture], model: LocalModel) -> ApiError:
    """400: a model cannot look at a picture, which it knows by its number."""
    named = _NUMBERED.match(str(error))
    place = pictures[int(named[1])].place if named is not None else "messages"
    why = _NUMBERED.sub("a picture", str(error), count=1)
    return invalid(f"'{place}': the model '{model.info.name}' cannot take this: {why}", place, "invalid_image")


def _turn(message: Message) -> dict[str, Any]:
    """A message for templates, with the places of its pictures."""
    fields = message.for_template()
    if message.parts:
        content: list[dict[str, Any]] = []
        for piece in message.parts:
            if not isinstance(piece, str):
                content.append({"type": "image"})
            elif content and content[-1]["type"] == "text":
                # As texts are joined where there are no pictures.
                content[-1]["text"] += f"\n{piece}"
            else:
                content.append({"type": "text", "text": piece})
        fields["content"] = content
    return fields


def _thinking(request: ChatRequest, model: LocalModel) -> dict[str, Any]:
    """Variables by which a chat template is told how much to think. A model that never thinks takes `none`."""
    effort = request.reasoning_effort
    if effort is None:
        return {}
    if model.info.thinks == "harmony" and effort not in _LEVELS:
        message = f"'reasoning_effort' is '{effort}', but the model '{model.info.name}' always thinks; 'low' is least."
        raise unsupported("reasoning_effort", message)
    if model.info.thinks == "harmony" and model.reads(_LEVEL):
        return {_LEVEL: _LEVELS[effort]}
    if model.reads(_LEVEL):
        return {_LEVEL: _USUAL if effort == ADAPTIVE else effort}
    if model.reads(_SWITCH):
        return {_SWITCH: effort not in _OFF}
    if effort == ADAPTIVE or (effort == "none" and not model.info.thinks):
        return {}
    message = f"'reasoning_effort' is '{effort}', but the model '{model.info.name}' cannot be told how much to think."
    raise unsupported("reasoning_effort", message)
