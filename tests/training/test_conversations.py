"""Conversations become training rows exactly as serving would encode them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_models import write_tokenizer

from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.tokenizer import Tokenizer
from headgate.training.conversations import Encoder, Line, main, read_lines

TURN_END = 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer with a chat template."""
    write_tokenizer(tmp_path)
    return tmp_path


def test_learns_what_serving_renders(folder: Path) -> None:
    """Each answer stands behind the very tokens of its prompt and ends its turn; the rest is not learned."""
    tokenizer, template = Tokenizer.load(folder), ChatTemplate.load(folder)
    turns = [
        {"role": "user", "content": "the dog"},
        {"role": "assistant", "content": "the fox"},
        {"role": "user", "content": "and then"},
        {"role": "assistant", "content": "jumps over"},
    ]
    (row,) = Encoder(folder).rows(Line("x:1", "train", tuple(turns)))
    ids, learned = row
    served = tokenizer.encode(template.render(turns[:3]), add_special_tokens=False)
    assert ids[: len(served)] == served
    assert tokenizer.decode(ids[len(served) :], skip_special=False) == "jumps over<|im_end|>"
    answers = [token for token, flag in zip(ids, learned, strict=True) if flag]
    assert tokenizer.decode(answers, skip_special=False) == "the fox<|im_end|>jumps over<|im_end|>"


def test_template_that_rewrites_earlier_turns_gives_a_row_for_each_answer(folder: Path) -> None:
    """Qwen3's template drops the reasoning of earlier turns: a second answer does not stand behind the first's text."""
    path = folder / "tokenizer_config.json"
    template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
        "{% set keep = loop.last or m['role'] == 'user' %}"
        "{{ m['content'] if keep else m['content'].split('|')[-1] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))
    turns = [{"role": "user", "content": "fox"}, {"role": "assistant", "content": "thought|dog"}] * 2
    rows = Encoder(folder).rows(Line("x:1", "train", tuple(turns)))
    tokenizer = Tokenizer.load(folder)
    learned = [[token for token, flag in zip(*row, strict=True) if flag] for row in rows]
    assert [tokenizer.decode(ids, False) for ids in learned] == ["thought|dog<|im_end|>"] * 2
    assert tokenizer.decode(rows[1][0]).count("thought") == 1


def test_completion_ends_with_the_end_token(folder: Path) -> None:
    encoder = Encoder(folder)
    ((ids, learned),) = encoder.rows(Line("x:1", "train", prompt="the quick", completion=" fox"))
    tokenizer = Tokenizer.load(folder)
    before = tokenizer.encode("the quick", add_special_tokens=True)
    assert ids[: len(before)] == before
    assert ids[-1] == TURN_END
    assert learned == [False] * len(before) + [True] * (len(ids) - len(before))


def test_demo_tasks_as_data(tmp_path: Path) -> None:
    path = tmp_path / "demo" / "data.jsonl"
    main(["--samples", "40", "--seed", "3", "--out", str(path)])
    lines = list(read_lines(path, ("train", "calibration")))
    assert [line.split for line in lines] == ["train"] * 40 + ["calibration"] * 4
    assert all(line.messages[-1]["role"] == "assistant" for line in lines)
    first = path.read_bytes()
    main(["--samples", "40", "--seed", "3", "--out", str(path)])
    assert path.read_bytes() == first
