"""The form of an answer in harmony as a grammar: its last message is JSON by a schema, a call, or text."""

from __future__ import annotations

from headgate.engine.text.answer_grammar import CallForm
from headgate.engine.text.written import Schema, json_value, literal

_MARKS_OF_THOUGHT = 4
"""Tokens around a thought: three of its header, and its end."""
_RULES = (
    'thought: <|channel|> "analysis" <|message|> thoughts <|end|>',
    'preamble: <|channel|> "commentary" <|message|> TEXT <|end|>',
    'next: <|start|> "assistant"',
    'json: " "? <|constrain|> "json" | " json"',
    r"TEXT: /(.|\n)*/",
)


def harmony_grammar(
    schema: Schema | None, calls: CallForm | None, *, opened: bool, most: int | None = None
) -> str | None:
    """The grammar of an answer that goes on with `<|start|>assistant`; None: any answer.

    Each may be thought about first. JSON by the schema, a call, and where neither has to be text with remarks before it
    are what the last message may be. After a call the answer ends: of several there is the first.

    Args:
        schema: of the answer; None: it may be text, unless there must be a call.
        calls: those that it has or may have.
        opened: the prompt went on to the beginning of a thought.
        most: tokens of thinking at most, its marks included; then it is ended. None: it ends by itself.
    """
    if schema is None and calls is None and most is None:
        return None
    required = calls is not None and calls.required
    text = schema is None and not required
    last, rules = [], list(_RULES)
    if calls is not None:
        for at, (name, arguments) in enumerate(calls.functions.items()):
            to = literal(f" to=functions.{name}")
            rules += [
                f"call_{at}: to_{at} json? <|message|> value_{at}",
                f'to_{at}: {to} <|channel|> "commentary" | <|channel|> "commentary" {to}',
                f"value_{at}: %json {json_value(arguments)}",
            ]
            last.append(f"call_{at}")
    if schema is not None and not required:
        rules += ['answer: <|channel|> "final" json? <|message|> value', f"value: %json {json_value(schema)}"]
        last.append("answer")
    if text:
        rules.append('answer: <|channel|> "final" <|message|> TEXT')
        last.append("answer")
    if most is None:
        rules.append("thoughts: TEXT")
        before = "((thought | preamble) next)*" if text else "(thought next)*"
        first = "thoughts <|end|> next " if opened else ""
    else:
        free = max(0, most - (1 if opened else _MARKS_OF_THOUGHT))
        rules.append(f"thoughts[max_tokens={free}]: TEXT" if free else 'thoughts: ""')
        before = "(preamble next)*" if text else ""
        first = "thoughts <|end|> next " if opened else "(thought next)? "
    rules.insert(0, f"start: {first}{before} ({' | '.join(last)})")
    return "\n".join(["%llguidance {}", *rules, ""])
