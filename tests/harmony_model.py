"""A model that answers in harmony, as gpt-oss does: its special tokens, and a chat template of the same structure."""

from __future__ import annotations

import json
from pathlib import Path

from tiny_models import write_tokenizer
from tokenizers import AddedToken, Tokenizer

WORDS = ("assistant", "analysis", "commentary", "final")
"""Single tokens of gpt-oss's vocabulary."""
SPECIALS = ("<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>")
VOCABULARY = 320 + len(WORDS) + len(SPECIALS)

TEMPLATE = """
{%- macro setting() -%}
    {%- if reasoning_effort is not defined %}{%- set reasoning_effort = "medium" %}{%- endif %}
    {{- "Reasoning: " + reasoning_effort + "; channels: analysis, commentary, final" }}
    {%- if tools %}{{- "; calls: commentary" }}{%- endif %}
{%- endmacro -%}
{{- "<|start|>system<|message|>" + setting() + "<|end|>" }}
{%- set told, rest = "", messages %}
{%- if messages[0].role in ("system", "developer") %}
    {%- set told, rest = messages[0].content, messages[1:] %}
{%- endif %}
{%- if told or tools %}
    {{- "<|start|>developer<|message|>" + told }}
    {%- for tool in tools or [] %}
        {{- "\\n// " + tool.function.description + "\\ntype " + tool.function.name }}
    {%- endfor %}
    {{- "<|end|>" }}
{%- endif %}
{%- set called = namespace(name=none) %}
{%- for turn in rest %}
    {%- if turn.role == "assistant" and "tool_calls" in turn %}
        {%- if turn.content and turn.thinking %}{{- raise_exception("content and thinking beside calls") }}{%- endif %}
        {%- set answered = namespace(yes=false) %}
        {%- for later in rest[loop.index:] %}
            {%- if later.role == "assistant" and "tool_calls" not in later %}{%- set answered.yes = true %}{%- endif %}
        {%- endfor %}
        {%- set thought = turn.content or turn.thinking %}
        {%- if thought and not answered.yes %}
            {{- "<|start|>assistant<|channel|>analysis<|message|>" + thought + "<|end|>" }}
        {%- endif %}
        {%- set called.name = turn.tool_calls[0].function.name %}
        {{- "<|start|>assistant to=functions." + called.name + "<|channel|>commentary json<|message|>" }}
        {{- turn.tool_calls[0].function.arguments | tojson + "<|call|>" }}
    {%- elif turn.role == "assistant" %}
        {{- "<|start|>assistant<|channel|>final<|message|>" + turn.content + "<|end|>" }}
    {%- elif turn.role == "tool" %}
        {%- if called.name is none %}{{- raise_exception("a result without a call") }}{%- endif %}
        {{- "<|start|>functions." + called.name + " to=assistant<|channel|>commentary<|message|>" }}
        {{- turn.content | tojson + "<|end|>" }}
    {%- elif turn.role == "user" %}
        {{- "<|start|>user<|message|>" + turn.content + "<|end|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}
"""


def write_harmony(folder: Path, ends: tuple[str, ...] = ("<|return|>", "<|endoftext|>", "<|call|>")) -> Path:
    """Make a checkpoint's folder one whose model answers in harmony; `ends`: what its files name."""
    write_tokenizer(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken(word, special=False, normalized=False) for word in WORDS])
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in SPECIALS])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    settings = {**config, "eos_token": ends[0], "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    named = [tokenizer.token_to_id(end) for end in ends]
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": False, "eos_token_id": named}))
    return folder
