from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from headgate.engine.demo.tasks import generate
from headgate.engine.demo.tokenizer import (
    MARKS,
    SPECIALS,
    VOCABULARY,
    conversation_segments,
    load_tokenizer,
    save_tokenizer,
    token_id,
    train_tokenizer,
)
from headgate.engine.text.chat_template import ChatTemplate


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(seed=0, samples=5_000)


@pytest.fixture(scope="module")
def folder(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(tokenizer, place)
    return place


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=200))
def test_any_text_round_trips(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    "text", ["naïve café", "漢字とかな", "👩‍👩‍👧 🇫🇷", "a\r\n\r\n  b\t", "العربية", "\x00\x7f", "1234567890"]
)
def test_chosen_texts_round_trip(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_digits_stand_alone(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("on 2026 and 1,024").tokens
    assert [token for token in tokens if any(sign.isdigit() for sign in token)] == list("20261024")


@pytest.mark.parametrize("word", ["Klingendorf", "laptop", "Anna", "Zorblat", "straßenbahn"])
def test_a_word_is_the_same_tokens_wherever_it_stands(tokenizer: Tokenizer, word: str) -> None:
    alone = tokenizer.encode(word).ids
    for text in (f"Repeat: {word}", f"the {word} of it", f'"{word}", one', f"{word}.", f"old\n{word}\n", f"- {word} 7"):
        ids = tokenizer.encode(text).ids
        assert any(ids[start : start + len(alone)] == alone for start in range(len(ids))), text


def test_specials_and_marks_are_single_tokens_in_fixed_places(tokenizer: Tokenizer) -> None:
    assert [token_id(tokenizer, text) for text in SPECIALS] == [0, 1, 2]
    assert tokenizer.encode("".join(SPECIALS)).ids == [0, 1, 2]
    assert tokenizer.decode([0, 1, 2]) == ""
    assert tokenizer.get_vocab_size() == VOCABULARY
    # Marks are part of the text: they stay when special tokens are skipped.
    last = list(range(VOCABULARY - len(MARKS), VOCABULARY))
    assert tokenizer.encode("".join(MARKS)).ids == last
    assert tokenizer.decode(last) == "".join(MARKS)
    with pytest.raises(ValueError, match=r"no token '<nope>'.*<\|im_start\|>"):
        token_id(tokenizer, "<nope>")


def test_training_is_deterministic(folder: Path, tmp_path: Path) -> None:
    save_tokenizer(train_tokenizer(seed=0, samples=5_000), tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    assert load_tokenizer(folder).encode("one word").ids == load_tokenizer(tmp_path).encode("one word").ids


def test_chat_template_gives_the_trained_layout(tokenizer: Tokenizer, folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    fast = transformers.AutoTokenizer.from_pretrained(folder)
    assert (fast.eos_token, fast.pad_token) == ("<|im_end|>", "<|endoftext|>")
    own = ChatTemplate.load(folder)
    samples = list(generate(300, seed=11))
    assert any(sample.tools for sample in samples)
    for sample in samples:
        segments = conversation_segments(sample)
        turns, _ = sample.conversation
        tools = list(sample.tools) or None
        prompt = fast.apply_chat_template(turns, tools=tools, add_generation_prompt=True, tokenize=False)
        assert prompt == "".join(text for text, _ in segments[:-1])
        assert prompt == own.render(turns, tools=tools)
        # Encoding piece by piece, as in training, equals encoding the whole, as in serving.
        pieces = [number for text, _ in segments for number in tokenizer.encode(text).ids]
        assert pieces == tokenizer.encode(prompt + segments[-1][0]).ids
        assert fast.encode(prompt) == tokenizer.encode(prompt).ids
        assert segments[-1] == (f"{sample.written}<|im_end|>", True)


def test_chat_template_renders_calls_made_before(folder: Path) -> None:
    call = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
    turns = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Weather in Oslo?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
    ]
    tool = {"type": "function", "function": {"name": "get_weather"}}
    assert ChatTemplate.load(folder).render(turns, tools=[tool]) == (
        "<|im_start|>system\nBe short.\n<tools>\n"
        '{"type": "function", "function": {"name": "get_weather"}}\n</tools><|im_end|>\n'
        "<|im_start|>user\nWeather in Oslo?<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
        "<|im_end|>\n<|im_start|>tool\nrain<|im_end|>\n<|im_start|>assistant\n"
    )
