import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from headgate.engine.demo import checkpoint
from headgate.engine.demo.data import encode
from headgate.engine.demo.tasks import generate
from headgate.engine.demo.tokenizer import (
    SPECIALS,
    VOCABULARY,
    conversation_segments,
    load_tokenizer,
    save_tokenizer,
    token_id,
    train_tokenizer,
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(checkpoint("student"))


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
    tokens = tokenizer.encode("in 2026 and 1,024").tokens
    assert [token for token in tokens if any(sign.isdigit() for sign in token)] == list("20261024")


def test_specials_are_single_tokens_in_fixed_places(tokenizer: Tokenizer) -> None:
    assert [token_id(tokenizer, text) for text in SPECIALS] == [0, 1, 2]
    assert tokenizer.encode("".join(SPECIALS)).ids == [0, 1, 2]
    assert tokenizer.decode([0, 1, 2]) == ""
    assert tokenizer.get_vocab_size() == VOCABULARY
    with pytest.raises(ValueError, match=r"no token '<nope>'.*<\|im_start\|>"):
        token_id(tokenizer, "<nope>")


def test_pair_shares_one_tokenizer() -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (checkpoint("teacher") / name).read_bytes() == (checkpoint("student") / name).read_bytes()


def test_training_is_deterministic_and_gives_the_shipped_tokenizer(tmp_path) -> None:
    save_tokenizer(train_tokenizer(seed=0), tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / name).read_bytes() == (checkpoint("student") / name).read_bytes()


def test_chat_template_gives_the_trained_layout(tokenizer: Tokenizer) -> None:
    transformers = pytest.importorskip("transformers")
    fast = transformers.AutoTokenizer.from_pretrained(checkpoint("student"))
    assert (fast.eos_token, fast.pad_token) == ("<|im_end|>", "<|endoftext|>")
    for sample in generate(200, seed=11):
        segments = conversation_segments(sample)
        turns = [{"role": turn.role, "content": turn.content} for turn in sample.messages]
        prompt = fast.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        assert prompt == "".join(text for text, _ in segments[:-1])
        # Encoding piece by piece, as in training, equals encoding the whole, as in serving.
        assert encode(tokenizer, segments)[0] == tokenizer.encode(prompt + segments[-1][0]).ids
        assert fast.encode(prompt) == tokenizer.encode(prompt).ids
        assert segments[-1] == (f"{sample.answer}<|im_end|>", True)
