"""The pair's tokenizer: a byte-level BPE trained on the generator's text, with Qwen's chat layout.

Byte level, so any UTF-8 text round-trips; digits stand alone, so that numbers are read digit by digit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from headgate.engine.demo.tasks import Sample, generate

VOCABULARY = 3072
END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIALS = (END_OF_TEXT, TURN_START, TURN_END)

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
"""Turns as `<|im_start|>role`, a line break, the content, `<|im_end|>`, a line break; the layout of Qwen."""

_WORDS = r"\p{L}+ ?|\p{N}| ?[^\s\p{L}\p{N}]+ ?[\r\n]*|\s*[\r\n]+|\s"
"""Where text is cut before merging: words, single digits, signs, line breaks, white space.

A word takes the space after it along, not the one before it. So the first word of an answer, which follows no space, is
the same token as inside the prompt, and so is a word before a comma, a full stop or a quote: copying from the prompt,
which most tasks need, is then one skill and not one association per word. That matters to models this small.
"""


def train_tokenizer(*, seed: int = 0, samples: int = 20_000, vocabulary: int = VOCABULARY) -> Tokenizer:
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
        vocab_size=vocabulary,
        min_frequency=2,
        show_progress=False,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(_texts(samples, seed), trainer)
    return tokenizer


def _texts(samples: int, seed: int) -> Iterator[str]:
    for sample in generate(samples, seed=seed, turns=0.0):
        for message in sample.messages:
            yield f"{message.role}\n{message.content}"
        yield f"assistant\n{sample.answer}"


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
    for message in sample.messages:
        if message.role == "assistant":
            segments += [(f"{prompt}{TURN_START}assistant\n", False), (f"{message.content}{TURN_END}", True)]
            prompt = "\n"
        else:
            prompt += f"{TURN_START}{message.role}\n{message.content}{TURN_END}\n"
    return [*segments, (f"{prompt}{TURN_START}assistant\n", False), (f"{sample.answer}{TURN_END}", True)]
