"""Where prompts are read: short ones at once, long ones in a thread, wherever their length lies."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.prompt_reader import PromptReader
from headgate.engine.text.tokenizer import Tokenizer

LONG = "a" * 100_000


class Watched(ChatTemplate):
    """Notes which threads render."""

    def __init__(self) -> None:
        super().__init__({"default": "{{ messages | tojson }}"}, {}, "test")
        self.threads: list[threading.Thread] = []

    def render(self, *messages: Any, **named: Any) -> str:
        self.threads.append(threading.current_thread())
        return super().render(*messages, **named)


def called(arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": arguments}}]}


@pytest.mark.parametrize(
    ("message", "tools", "extra", "apart"),
    [
        ({"role": "user", "content": "a"}, None, {}, False),
        (called({"text": "a"}), None, {}, False),
        ({"role": "user", "content": LONG}, None, {}, True),
        ({"role": "user", "content": [{"type": "text", "text": LONG}]}, None, {}, True),
        (called({"text": LONG}), None, {}, True),
        (called(LONG), None, {}, True),
        ({"role": "assistant", "content": "a", "reasoning_content": LONG}, None, {}, True),
        ({"role": "user", "content": "a"}, [{"type": "function", "function": {"name": LONG}}], {}, True),
        ({"role": "user", "content": "a"}, None, {"documents": [LONG]}, True),
    ],
)
async def test_what_is_long_is_read_in_a_thread(
    byte_level: Tokenizer, message: dict[str, Any], tools: Any, extra: dict[str, Any], apart: bool
) -> None:
    template = Watched()
    reader = PromptReader(byte_level, template, 1000)
    assert await reader.chat([message], tools, None, extra)
    assert [thread is not threading.current_thread() for thread in template.threads] == [apart]
