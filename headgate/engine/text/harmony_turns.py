"""Conversations as harmony's chat template takes them, which knows fewer ways to say a thing than OpenAI's API.

It sees one message of instructions, the first; one call in a message, answered by the next; thoughts by the name
`thinking`, beside calls instead of a content; and functions that have a description. Which earlier thoughts the model
sees again is the template's: those before calls that no answer followed yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any

Turn = Mapping[str, Any]
_INSTRUCTIONS = ("system", "developer")
_BETWEEN = "\n\n"


def harmony_turns(messages: Sequence[Turn]) -> list[Turn]:
    """The same conversation of messages whose contents are texts. Instructions that come later stand with the first."""
    given = [message["content"] for message in messages if message["role"] in _INSTRUCTIONS]
    turns: list[Turn] = [{"role": "system", "content": _BETWEEN.join(filter(None, given))}] if given else []
    rest = [message for message in messages if message["role"] not in _INSTRUCTIONS]
    at = 0
    while at < len(rest):
        message, at = rest[at], at + 1
        if message["role"] != "assistant":
            turns.append(message)
            continue
        results = list(takewhile(lambda turn: turn["role"] == "tool", islice(rest, at, None)))
        at += len(results)
        turns += _said(message, results)
    return turns


def harmony_tools(tools: Sequence[Turn]) -> list[Turn]:
    """Definitions of functions, each with a description."""
    return [{**tool, "function": {"description": "", **tool["function"]}} for tool in tools]


def _said(message: Turn, results: list[Turn]) -> Iterator[Turn]:
    """A message of the assistant, with its calls one by one and the result of each behind it."""
    thought = message.get("thinking") or message.get("reasoning_content")
    calls = message.get("tool_calls") or ()
    bare = {key: value for key, value in message.items() if key not in ("tool_calls", "thinking")}
    if not calls:
        yield {**bare, "thinking": thought} if thought else bare
        yield from results
        return
    if thought:
        # What was said beside calls is a thought to the template, too.
        thought = _BETWEEN.join(filter(None, (thought, message["content"])))
        bare = {**bare, "content": "", "thinking": thought}
    for at, call in enumerate(calls):
        said = bare if at == 0 else {"role": "assistant", "content": ""}
        yield {**said, "tool_calls": [call]}
        last = at == len(calls) - 1
        # Those of no call stand behind the last.
        own = [result for result in results if last or result.get("tool_call_id") == call.get("id")]
        results = [result for result in results if result not in own]
        yield from own
