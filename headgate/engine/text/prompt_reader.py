"""What a model is asked, as tokens: a long text is read in a thread, and one that is far too long not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from headgate.engine.errors import PromptTooLong
from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.picture_reader import PictureReader
from headgate.engine.text.pictures import Picture, Sight
from headgate.engine.text.tokenizer import Tokenizer

_INLINE_CHARACTERS = 4096
"""About the length whose encoding takes a millisecond; longer texts are read in a thread."""


class PromptReader:
    """Reads plain texts and conversations for one model."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        chat_template: ChatTemplate,
        context_length: int,
        pictures: PictureReader | None = None,
    ) -> None:
        """`context_length`: of the model, in tokens; named where a text is too long. `pictures`: of one that sees."""
        self._pictures = pictures
        self._tokenizer = tokenizer
        self._chat_template = chat_template
        self._context_length = context_length

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        most: int | None,
        extra: Mapping[str, Any],
    ) -> tuple[int, ...]:
        """As `LocalModel.render_chat`."""
        told = len(str(tools)) if tools else 0
        # All that a template may read: arguments of calls and thoughts are as long as any text.
        if told + sum(map(_length, (*messages, extra))) < _INLINE_CHARACTERS:
            return self._render(messages, tools, most, extra)
        return await asyncio.to_thread(self._render, messages, tools, most, extra)

    async def look(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        pictures: Sequence[Picture],
        most: int | None,
        extra: Mapping[str, Any],
    ) -> tuple[tuple[int, ...], tuple[Sight, ...]]:
        """As `LocalModel.look`."""
        if not pictures:
            return await self.chat(messages, tools, most, extra), ()
        if self._pictures is None:
            raise ValueError("the model sees no pictures; texts are accepted")
        return await asyncio.to_thread(self._look, self._pictures, messages, tools, pictures, most, extra)

    async def plain(self, text: str, *, special: bool, most: int | None) -> tuple[int, ...]:
        """As `LocalModel.encode`."""
        if len(text) < _INLINE_CHARACTERS:
            return self._read(text, special, most)
        return await asyncio.to_thread(self._read, text, special, most)

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        most: int | None,
        extra: Mapping[str, Any],
    ) -> tuple[int, ...]:
        return self._read(self._chat_template.render(messages, tools=tools, **extra), False, most)

    def _look(
        self,
        reader: PictureReader,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        pictures: Sequence[Picture],
        most: int | None,
        extra: Mapping[str, Any],
    ) -> tuple[tuple[int, ...], tuple[Sight, ...]]:
        text = self._chat_template.render(messages, tools=tools, pictures=True, **extra)
        return reader.place(self._read(reader.framed(text), False, most), pictures)

    def _read(self, text: str, special: bool, most: int | None) -> tuple[int, ...]:
        # Megabytes take seconds, and a hundred times their size of memory.
        if most is not None and (least := self._tokenizer.least_tokens(text)) > most:
            raise PromptTooLong(least, self._context_length, at_least=True)
        return tuple(self._tokenizer.encode(text, add_special_tokens=special))


def _length(fields: Mapping[str, Any]) -> int:
    """Characters of the values, about."""
    return sum(len(value if isinstance(value, str) else str(value)) for value in fields.values())
