"""The pair's tokenizer: a byte-level BPE trained on the generator's text, with Qwen's chat layout.

Byte level, so any UTF-8 text round-trips; digits stand alone, so that numbers are read digit by digit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from headgate.engine.demo.tasks import Sample, generate

VOCABULARY = 4096
END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIALS = (END_OF_TEXT, TURN_START, TURN_END)
MARKS = ("<tools>", "</tools>", "<tool_call>", "</tool_call>")
"""Single tokens that stay visible in the text, as in Qwen's tokenizer. They have the last ids."""

CHAT_TEMPLATE = """\
{%- set first = messages[0] if messages else none -%}
{%- if tools -%}
{{- '<|im_start|>system\\n' -}}
{%- if first and first['role'] == 'system' -%}{{- first['content'] + '\\n' -}}{%- endif -%}
{{- '<tools>\\n' -}}
{%- for tool in tools -%}{{- tool | tojson -}}{{- '\\n' -}}{%- endfor -%}
{{- '</tools><|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if not (tools and loop.first and message['role'] == 'system') -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- if message['content'] is string -%}{{- message['content'] -}}{%- endif -%}
{%- for call in message['tool_calls'] or [] -%}
{%- set given = call['function']['arguments'] -%}
{{- '<tool_call>\\n{"name": ' -}}{{- call['function']['name'] | tojson -}}{{- ', "arguments": ' -}}
{{- given if given is string else given | tojson -}}{{- '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
"""Turns as `<|im_start|>role`, a line break, the content, `<|im_end|>`, a line break; the layout of Qwen.

Tools stand in the system turn, one JSON object a line between `<tools>` and `</tools>`; a call is a JSON object with
name and arguments between `<tool_call>` and `</tool_call>`.
"""

_MARKED = re.compile("|".join(re.escape(text) for text in SPECIALS + MARKS))

_FRAME = (
    "a an the this that these of in on at to for from with by as and or is are was were be it i you me my your "
    "what which who how many much does do has have please"
)
_RUN = r"(?i:(?:{words})(?!\p{{L}})(?: (?:{words})(?!\p{{L}}))*)".format(words=_FRAME.replace(" ", "|"))
_WORDS = rf" ?(?<!\p{{L}}){_RUN} ?|\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+(?: |[\r\n]+)?|\s*[\r\n]+|\s"
"""Where text is cut before merging: runs of grammatical words with the spaces around them, words without, single
digits, signs with the spaces around them, line breaks, white space.

A word that carries content is the same tokens wherever it stands: first in an answer, inside a sentence, before a comma
or a quote. So copying it from the prompt, which most tasks need, is one skill for all words, those that training never
saw included, and not one association per word and place. The runs (" is the ") make up for the spaces that are tokens.
"""


def train_tokenizer(*, seed: int = 0, samples: int = 60_000) -> Tokenizer:
    """A tokenizer trained on `samples` of the train split. Deterministic for the same arguments."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKS),
        min_frequency=2,
        show_progress=False,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(_texts(samples, seed), trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in MARKS])
    return tokenizer


def _texts(samples: int, seed: int) -> Iterator[str]:
    for sample in generate(samples, seed=seed, turns=0.0):
        # Working only repeats what the prompt says.
        for text, _ in conversation_segments(replace(sample, working="")):
            yield _MARKED.sub("\n", text)


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json, as `transformers.AutoTokenizer` expects them."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 2048,
        "bos_token": None,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint folder."""
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a special token. Raises `ValueError` if the tokenizer lacks it."""
    number = tokenizer.token_to_id(token)
    if number is None:
        raise ValueError(f"the tokenizer has no token {token!r}; a tokenizer of this pair has {', '.join(SPECIALS)}")
    return number


def conversation_segments(sample: Sample) -> list[tuple[str, bool]]:
    """The sample as text in the chat layout, in pieces; True marks pieces the model must produce.

    Every assistant turn, earlier ones too, is a right answer and is learned with its `<|im_end|>`.
    """
    segments: list[tuple[str, bool]] = []
    prompt = ""
    messages = sample.messages
    if sample.tools:
        system = messages[0].content + "\n" if messages[0].role == "system" else ""
        messages = messages[1:] if system else messages
        listed = "".join(json.dumps(tool, ensure_ascii=False) + "\n" for tool in sample.tools)
        prompt = f"{TURN_START}system\n{system}<tools>\n{listed}</tools>{TURN_END}\n"
    for message in messages:
        if message.role == "assistant":
            segments += [(f"{prompt}{TURN_START}assistant\n", False), (f"{message.content}{TURN_END}", True)]
            prompt = "\n"
        else:
            prompt += f"{TURN_START}{message.role}\n{message.content}{TURN_END}\n"
    return [*segments, (f"{prompt}{TURN_START}assistant\n", False), (f"{sample.written}{TURN_END}", True)]
