"""Forms in several steps of one native call: the same tokens as step by step from masked logits, whoever is beside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from decode_sequences import BLOCK, PARAMS, OneByOne, Sequences
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.demo import checkpoint
from headgate.engine.demo.tasks.words import FIRST_NAMES
from headgate.engine.kernels.cpu.kernels import CpuKernels, native_status
from headgate.engine.kernels.whole_step import HELD
from headgate.engine.models.decoder import Decoder
from headgate.engine.models.loader import load_decoder
from headgate.engine.sampling.forms import GuidedForms
from headgate.engine.sampling.grammar import Grammar, GrammarError, Grammars, Guide
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.stepping.found import Sampled
from headgate.engine.text.answer_grammar import json_grammar
from headgate.engine.text.tokenizer import Tokenizer

STATUS = native_status()
pytestmark = pytest.mark.skipif(not STATUS.usable, reason=f"native kernels: {STATUS.why}")

TOKENIZER = Tokenizer.load(checkpoint("student"))
GREEDY = SamplingParams(temperature=0.0)
ENTRY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 9},
        "kind": {"enum": ["person", "place"]},
        "count": {"type": "integer", "minimum": 0},
    },
    "required": ["name", "kind", "count"],
    "additionalProperties": False,
}
FORMS = (
    json_grammar({"type": "array", "items": ENTRY, "minItems": 100}),
    json_grammar({"type": "array", "items": {"type": "boolean"}, "minItems": 100}),
    "start: TEXT\nTEXT: /(.|\\n)*/\n",
    "start: TEXT\nTEXT: /[^aeiou]*/\n",
    "start: TEXT\nTEXT: /([a-z]+ ){0,400}[A-Z]/\n",
)
"""From those that refuse nearly all a model says to one that takes everything. None ends before the tests do."""


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return load_decoder(checkpoint("student"), CpuKernels()).decoder


@pytest.fixture(scope="module")
def stepwise() -> Decoder:
    return load_decoder(checkpoint("student"), OneByOne()).decoder


@pytest.fixture(scope="module")
def grammars(decoder: Decoder) -> Grammars:
    return Grammars(TOKENIZER, decoder.spec.vocab_size)


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(PARAMS, st.none() | st.sampled_from(FORMS)), min_size=1, max_size=6),
    calls=st.lists(st.integers(1, 12), min_size=1, max_size=3),
)
def test_forms_in_a_row_are_the_forms_step_by_step(
    decoder: Decoder,
    stepwise: Decoder,
    grammars: Grammars,
    rows: list[tuple[SamplingParams, str | None]],
    calls: list[int],
) -> None:
    params = [sampling for sampling, _ in rows]
    forms = [None if text is None else grammars.compile(text) for _, text in rows]
    several, single = Sequences(decoder, params, forms), Sequences(stepwise, params, forms)
    for most in calls:
        assert several.decode(most) == most
        for _ in range(most):
            single.decode(1)
    assert several.outputs() == single.outputs()


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_no_token(decoder: Decoder, grammars: Grammars, threads: int) -> None:
    forms: list[Grammar | None] = [grammars.compile(text) for text in FORMS]
    params = [GREEDY, SamplingParams(seed=3), GREEDY, GREEDY, GREEDY]
    expected, got = Sequences(decoder, params, forms), Sequences(decoder, params, forms)
    expected.decode(20)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        got.decode(20)
    finally:
        torch.set_num_threads(before)
    assert got.outputs() == expected.outputs()


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(FORMS), st.integers(0, 40), st.randoms(use_true_random=False))
def test_a_token_is_taken_exactly_where_it_is_allowed(
    decoder: Decoder, grammars: Grammars, text: str, steps: int, random: Any
) -> None:
    """On which it rests that a free choice may be asked about instead of what is allowed. An end it may refuse."""
    guide, vocabulary = grammars.compile(text).guide(0), decoder.spec.vocab_size
    bits = np.zeros(-(-vocabulary // 32), dtype=np.int32)
    for _ in range(steps + 1):
        guide.allow(bits.ctypes.data)
        allowed = np.flatnonzero(np.unpackbits(bits.view(np.uint8), count=vocabulary, bitorder="little")).tolist()
        single_bytes_and_more = {-1, vocabulary, *range(100), *random.sample(range(vocabulary), 20)}
        assert not any(guide.takes(token) for token in single_bytes_and_more.difference(allowed))
        going_on = [token for token in allowed if token not in TOKENIZER.eos_ids]
        if not going_on:
            break
        assert guide.takes(random.choice(going_on))


def test_tokens_beyond_the_tokenizers_are_never_allowed(decoder: Decoder, grammars: Grammars) -> None:
    forms = GuidedForms({1: (grammars.compile(FORMS[2]).guide(0), True)}, 2, decoder.spec.vocab_size + 100)
    forms.prepare()
    words = decoder.spec.vocab_size // 32
    assert (forms.of.tolist(), forms.told[0, 1].item()) == ([-1, 0], HELD)
    assert forms.allowed[0, :words].any()
    assert not forms.allowed[0, words:].any()


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(seed=1)])
def test_logits_that_are_not_finite_end_the_request_that_has_a_form_alone(
    decoder: Decoder, grammars: Grammars, sampling: SamplingParams
) -> None:
    run = Sequences(decoder, [GREEDY, sampling], [None, grammars.compile(FORMS[1])])
    run.decode(3)
    for layer in run.store.layers:
        layer.values[run.sequences[1].table.blocks[0] * BLOCK] = torch.nan
    chunks = [Chunk(s, len(s.tokens) - 1, 1) for s in run.sequences]
    sound, broken = run.runner.run(chunks, 9, run.interrupt, repeats=True)
    assert isinstance(sound, Sampled)
    assert (sound.broken, broken.broken) == (False, True)
    assert len(sound.tokens) == 1


def guides(run: Sequences) -> list[Guide]:
    return [sequence.guide for sequence in run.sequences if sequence.guide is not None]


def test_a_greedy_choice_that_goes_by_itself_is_only_asked_about(
    decoder: Decoder, grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    anything, refuses = grammars.compile(FORMS[2]), grammars.compile(FORMS[1])
    # The model says text for longer than this test takes.
    said = "Please repeat this: " + " ".join(FIRST_NAMES[:24])
    prompt = f"<|im_start|>user\n{said}<|im_end|>\n<|im_start|>assistant\n"
    params, forms = [GREEDY, SamplingParams(seed=1), GREEDY], [refuses, anything, anything]
    run = Sequences(decoder, params, forms, tuple(TOKENIZER.encode(prompt, add_special_tokens=False)))
    asked = [0, 0, 0]
    for number, guide in enumerate(guides(run)):

        def allow(address: int, number: int = number, real: Any = guide.allow) -> None:
            asked[number] += 1
            real(address)

        monkeypatch.setattr(guide, "allow", allow)
    for _ in range(3):
        run.decode(10)
    held, drawn, free = asked
    assert (free, drawn) == (1, 30), "the first choice is always held"
    assert 10 <= held <= 30


def test_who_loses_his_form_ends_the_run_and_spares_the_neighbours(
    decoder: Decoder, grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Sequences(decoder, [GREEDY] * 3, [grammars.compile(FORMS[1]), None, grammars.compile(FORMS[0])])
    left, allow = [4], guides(run)[0].allow

    def lose(address: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise GrammarError("it grew too complex")
        allow(address)

    monkeypatch.setattr(guides(run)[0], "allow", lose)
    chunks = [Chunk(s, len(s.tokens) - 1, 1) for s in run.sequences]
    lost, *others = run.runner.run(chunks, 9, run.interrupt, repeats=True)
    assert isinstance(lost, Sampled)
    assert (lost.broken, lost.lost) == (True, "it grew too complex")
    assert [len(one.tokens) for one in others if isinstance(one, Sampled)] == [5, 5]


def test_a_fault_in_a_form_is_the_calls(decoder: Decoder, grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(address: int) -> None:  # noqa: ARG001
        raise ZeroDivisionError("a fault")

    run = Sequences(decoder, [GREEDY], [grammars.compile(FORMS[1])])
    monkeypatch.setattr(guides(run)[0], "allow", fail)
    with pytest.raises(ZeroDivisionError, match="a fault"):
        run.decode(9)


def test_what_follows_a_run_is_a_part_of_the_form(decoder: Decoder, grammars: Grammars) -> None:
    """Runs of different lengths, and single steps that report logprobs between them, end in one whole answer."""
    schema = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 4, "maxItems": 4}
    run = Sequences(decoder, [GREEDY], [grammars.compile(json_grammar(schema))])
    sequence = run.sequences[0]
    sequence.ends = frozenset(TOKENIZER.eos_ids)
    for most in range(1, 30):
        sequence.direct = most % 3 != 0
        run.decode(most)
        if sequence.tokens[-1] in sequence.ends:
            break
    answer = json.loads(TOKENIZER.decode(run.outputs()[0][:-1]))
    assert len(answer) == 4
