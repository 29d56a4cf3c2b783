"""From a request to the tokens a model reads."""

from __future__ import annotations

import asyncio
from typing import Any

from headgate.engine.local import LocalModel
from headgate.engine.text.chat_template import NoChatTemplate, TemplateError
from headgate.gateway.aside import LONG
from headgate.gateway.inputs import TEXT_ALONE, refuse_inputs
from headgate.gateway.request import ADAPTIVE, ChatRequest
from headgate.gateway.wire.errors import invalid, unsupported
from headgate.gateway.wire.weight import is_heavier

_SWITCH, _LEVEL = "enable_thinking", "reasoning_effort"
_MOST_VALUES = 100_000
"""In the arguments of one call, as `is_heavier` counts: decoding them lets no other thread go on."""
_MOST = ("high", "xhigh", "max")
_OFF, _USUAL = ("none", "minimal"), "medium"
_LEVELS = {"minimal": "low", "low": "low", ADAPTIVE: "medium", "medium": "medium", **dict.fromkeys(_MOST, "high")}
"""What models that speak harmony were taught, by what is asked; they always think."""


async def prompt_of(request: ChatRequest, model: LocalModel, most: int | None = None) -> tuple[int, ...]:
    """The prompt; ApiError 400 where the conversation has more than text, or the model's chat template refuses it.

    PromptTooLong where it would have more than `most` tokens, as far as its length tells.
    """
    if isinstance(request.prompt, tuple):
        return request.prompt
    if request.prompt is not None:
        return await model.encode(request.prompt, most=most)
    refuse_inputs(request, model.info.name, TEXT_ALONE)
    extra = _thinking(request, model)
    messages = await _messages(request)
    tools = [tool.for_template() for tool in request.callable_tools] or None
    try:
        return await model.render_chat(messages, tools, most=most, **extra)
    except NoChatTemplate:
        message = f"The model '{model.info.name}' has no chat template; use /v1/completions."
        raise invalid(message, "messages", "no_chat_template") from None
    except TemplateError as error:
        message = f"The model's chat template refuses these messages: {error}"
        raise invalid(message, "messages", "invalid_messages") from None


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
        return [message.for_template() for message in request.messages]

    return await asyncio.to_thread(read) if sum(len(call.arguments) for call in calls) > LONG else read()


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
