"""Drafts: whatever they say, answers are those that come without."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from draft_edits import Edit, edited, edits_of
from engine_site import StartLine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from headgate.engine.engine import Engine
from headgate.engine.front.local import LocalModel
from headgate.engine.kernels.cpu.kernels import native_status
from headgate.engine.kv.tables import KVTables
from headgate.engine.models.loader import Dtype
from headgate.engine.quant.linear import WeightFormat
from headgate.engine.request import Finish, Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.sequence import Sequence
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.engine.speculation.draft import Draft
from headgate.engine.speculation.planner import Planner
from headgate.engine.speculation.verifier import holding

NEW = 24
EVERY = EngineSettings(kernels="reference", block_size=4)
# Chunks of prompts, preemptions, and blocks that are found again.
TIGHT = replace(EVERY, max_step_tokens=9, max_running=6)
TIGHT_BLOCKS = 22


def ticking() -> Callable[[], float]:
    """A clock by which one second passes from look to look."""
    ticks = itertools.count()
    return lambda: float(next(ticks))


@contextmanager
def serving(
    folder: Path,
    wanted: EngineSettings,
    dtype: Dtype = "float32",
    weights: WeightFormat = "native",
    *,
    blocks: int | None = None,
    clock: Callable[[], float] | None = None,
) -> Iterator[LocalModel]:
    """An engine whose steps take equally long by its clock, so that every draft is worth checking."""
    if blocks is not None:
        with serving(folder, wanted, dtype) as model:
            per_token = model.info.kv_bytes_per_token
        wanted = replace(wanted, kv_bytes=blocks * wanted.block_size * per_token)
    engine = Engine(wanted, clock=clock or ticking())
    engine.load(ModelSpec("m", folder, dtype=dtype, weights=weights))
    engine.start()
    try:
        yield engine.models["m"]
    finally:
        engine.stop()


@pytest.fixture(scope="module")
def models(tiny_checkpoint: Path) -> Iterator[tuple[LocalModel, ...]]:
    with serving(tiny_checkpoint, EVERY) as wide, serving(tiny_checkpoint, TIGHT, blocks=TIGHT_BLOCKS) as tight:
        yield wide, tight


@dataclass(frozen=True, slots=True)
class Asked:
    prompt: tuple[int, ...]
    sampling: SamplingParams
    n: int = 1
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Said:
    tokens: tuple[int, ...]
    text: str
    logprobs: tuple[object, ...]
    finish: Finish

    @property
    def seen(self) -> tuple[object, ...]:
        """What its reader can tell from another."""
        finish = self.finish
        account = (finish.reason, finish.prompt_tokens, finish.completion_tokens)
        return self.tokens, self.text, self.logprobs, account

    @property
    def roughly(self) -> tuple[object, ...]:
        """The same, where sums are taken in another order in steps of several rows: the last places may differ."""
        return self.tokens, self.text, len(self.logprobs), self.seen[-1]


async def ask(model: LocalModel, asked: Asked, draft: tuple[int, ...] = ()) -> list[Said]:
    tokens: list[list[int]] = [[] for _ in range(asked.n)]
    texts, logprobs = [""] * asked.n, [list[object]() for _ in range(asked.n)]
    finishes: dict[int, Finish] = {}
    stream = model.generate("r", asked.prompt, asked.sampling, n=asked.n, stop=asked.stop, draft=draft)
    async for delta in stream:
        tokens[delta.index].extend(delta.token_ids)
        logprobs[delta.index].extend(delta.logprobs)
        texts[delta.index] += delta.text
        if delta.finish is not None:
            finishes[delta.index] = delta.finish
    return [Said(tuple(tokens[i]), texts[i], tuple(logprobs[i]), finishes[i]) for i in range(asked.n)]


def ask_all(
    model: LocalModel,
    asked: list[Asked],
    drafts: list[tuple[int, ...]] | None = None,
    line: StartLine | None = None,
) -> list[list[Said]]:
    async def together() -> list[list[Said]]:
        askers = [ask(model, *one) for one in zip(asked, drafts or [()] * len(asked), strict=True)]
        return await (asyncio.gather(*askers) if line is None else line.together(model, askers))

    return asyncio.run(together())


def prompt_of(length: int) -> tuple[int, ...]:
    return tuple(torch.randint(3, 320, (length,), generator=torch.Generator().manual_seed(length)).tolist())


SAMPLINGS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.0, 0.7]),
    top_p=st.sampled_from([1.0, 0.8]),
    top_k=st.sampled_from([0, 20]),
    seed=st.integers(0, 3),
    max_tokens=st.integers(1, NEW),
    stop_token_ids=st.sampled_from([(), (5, 77, 130, 200)]),
    ignore_eos=st.booleans(),
    logprobs=st.sampled_from([None, None, 0]),
    presence_penalty=st.sampled_from([0.0, 0.0, 0.0, 1.0]),
    logit_bias=st.sampled_from([(), ((33, 2.0),)]),
    begin_suppress_tokens=st.sampled_from([(), tuple(range(0, 320, 2))]),
)
ASKED = st.builds(
    Asked,
    st.sampled_from([1, 7, 30, 41]).map(prompt_of),
    SAMPLINGS,
    st.integers(1, 2),
    st.sampled_from([(), (), ("e", "qu")]),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(ASKED, edits_of(st.integers(0, 319))), min_size=1, max_size=4))
def test_no_draft_changes_an_answer_or_its_account(
    models: tuple[LocalModel, ...], wanted: list[tuple[Asked, list[Edit]]]
) -> None:
    asked = [one for one, _ in wanted]
    for model in models:
        without = ask_all(model, asked)
        drafts = [edited(choices[0].tokens, edits) for choices, (_, edits) in zip(without, wanted, strict=True)]
        found = ask_all(model, asked, drafts)
        assert [[said.roughly for said in choices] for choices in found] == [
            [said.roughly for said in choices] for choices in without
        ]
        for choices, draft in zip(found, drafts, strict=True):
            for said in choices:
                assert 0 <= said.finish.accepted <= len(said.tokens)
                assert 0 <= said.finish.rejected <= len(draft) - said.finish.accepted
        assert model.stats().kv_blocks_used == 0


def test_what_is_checked_there_is_checked_indeed(models: tuple[LocalModel, ...]) -> None:
    """The test above would hold as well if no draft was ever looked at."""
    for model in models:
        asked = Asked(prompt_of(30), SamplingParams(temperature=0.0, max_tokens=NEW, ignore_eos=True))
        ((own,),) = ask_all(model, [asked])
        before = model.stats().steps
        ((again,),) = ask_all(model, [asked], [own.tokens])
        assert again.tokens == own.tokens
        assert again.finish.accepted > NEW // 2
        assert again.finish.rejected == 0
        assert model.stats().steps - before < NEW // 2
        drawn = Asked(prompt_of(30), SamplingParams(temperature=0.7, seed=5, max_tokens=NEW, ignore_eos=True))
        ((own,),) = ask_all(model, [drawn])
        ((again,),) = ask_all(model, [drawn], [own.tokens])
        assert again.tokens == own.tokens
        assert again.finish.accepted > NEW // 2, "draws are as certain as likeliest tokens, once the noise is"


def test_drafts_change_nothing_where_sequences_take_each_others_room(tiny_checkpoint: Path) -> None:
    greedy = SamplingParams(temperature=0.0, max_tokens=NEW, ignore_eos=True)
    several = [Asked(prompt_of(length), greedy) for length in (7, 30, 41, 25)]
    line = StartLine(ticking())
    with serving(tiny_checkpoint, TIGHT, blocks=TIGHT_BLOCKS, clock=line) as tight:
        without = ask_all(tight, several)
        before = tight.stats().preemptions
        found = ask_all(tight, several, [said.tokens for (said,) in without], line)
        assert [said.roughly for (said,) in found] == [said.roughly for (said,) in without]
        assert tight.stats().preemptions > before, "they have room one after the other only"


@pytest.mark.parametrize("seed", range(4))
def test_an_answer_ends_where_it_ends_though_its_draft_goes_on(models: tuple[LocalModel, ...], seed: int) -> None:
    drawn = SamplingParams(temperature=0.9, seed=seed, max_tokens=NEW, ignore_eos=True)
    ((own,),) = ask_all(models[0], [Asked(prompt_of(30), drawn)])
    for ending in (replace(drawn, stop_token_ids=(own.tokens[NEW // 2],)), replace(drawn, max_tokens=NEW // 2)):
        ((without,),) = ask_all(models[0], [Asked(prompt_of(30), ending)])
        ((said,),) = ask_all(models[0], [Asked(prompt_of(30), ending)], [own.tokens])
        assert said.roughly == without.roughly
        assert said.tokens == own.tokens[: len(said.tokens)]


@pytest.mark.parametrize("weights", ["native", "int8"])
@pytest.mark.skipif(not native_status().usable, reason=f"native kernels: {native_status().why}")
def test_compiled_kernels_give_the_same_bits(tiny_checkpoint: Path, weights: WeightFormat) -> None:
    sampling = SamplingParams(temperature=0.7, seed=5, max_tokens=NEW, ignore_eos=True, logprobs=3)
    asked = [Asked(prompt_of(length), replace(sampling, temperature=t)) for length in (7, 30) for t in (0.0, 0.7)]
    with serving(tiny_checkpoint, EngineSettings(), "bfloat16", weights) as model:
        without = ask_all(model, asked)
        drafts = [edited(said.tokens, [(9, "replace", 3)]) for (said,) in without]
        for (said,), (own,) in zip(ask_all(model, asked, drafts), without, strict=True):
            assert said.seen == own.seen
            assert said.finish.accepted > NEW // 2


def test_logits_that_break_behind_a_wrong_draft_end_nobody(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """A token whose embedding is not finite, drafted wrongly: its keys must not stay for others either."""
    folder = tmp_path / "broken"
    shutil.copytree(tiny_checkpoint, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"][150] = torch.nan
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].nan_to_num(0.0)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    asked = Asked(prompt_of(7), SamplingParams(temperature=0.0, max_tokens=NEW, ignore_eos=True))
    with serving(folder, replace(EVERY, prefix_cache=False)) as model:
        ((own,),) = ask_all(model, [asked])
        draft = edited(own.tokens, [(6, "replace", 150), (14, "replace", 150)])
        for _ in range(2):
            ((said,),) = ask_all(model, [asked], [draft])
            assert said.seen == own.seen
            assert said.finish.rejected > 0


@pytest.mark.parametrize("before", [0, 0xD7F9, 0xFEFE, 0x10FFF0], ids=["first", "surrogates", "mark", "last"])
@pytest.mark.parametrize(
    ("answer", "accepted", "rejected"),
    [
        (range(1, 13), 12, 0),
        ((1, 2, 3, 99, 5, 6, 7, 8), 7, 1),
        ((1, 2, 3, 98, 99, 4, 5, 6, 7, 8), 5, 2),
        ((1, 2, 3, 7, 8, 9, 10, 11, 12), 6, 2),
        (range(50, 70), 0, 1),
    ],
    ids=["same", "replaced", "inserted", "left-out", "other"],
)
def test_a_draft_is_followed_and_found_again(answer: Seq[int], accepted: int, rejected: int, before: int) -> None:
    """`before`: how many tokens of the vocabulary come before those, for which there may be no character."""
    draft = Draft(tuple(range(before + 1, before + 13)), 2)
    sequence = [40, 41]
    for token in answer:
        proposed = draft.propose(1) if draft.left else ()
        sequence.append(before + token if token < 13 else token)
        draft.follow(sequence, 1, len(proposed))
    assert (draft.accepted, draft.rejected) == (accepted, rejected)


def test_a_place_before_a_wrong_one_counts_as_well() -> None:
    """What was proposed first lies further on in the draft than what was right."""
    draft, sequence = Draft((2, 2, 2, 3, 3, 2, 1), 1), [40]
    for token in (3, 3, 2, 2, 2, 3, 3, 2, 1, 3):
        proposed = draft.propose(2) if draft.left else ()
        sequence.append(token)
        draft.follow(sequence, 1, len(proposed))
    assert (draft.accepted, draft.rejected) == (4, 2)


def test_no_draft_makes_the_search_for_a_lost_place_long() -> None:
    """The bytes of one are those of what is looked for wherever one begins but at its numbers."""

    def seconds(tokens: tuple[int, ...]) -> float:
        draft, sequence, took = Draft(tokens, 10), [7] * 10, list[float]()
        for _ in range(10):
            sequence.append(1)
            started = time.thread_time()
            draft.follow(sequence, 1)
            took.append(time.thread_time() - started)
        assert draft.left == 0
        return min(took[5:])

    length = 1 << 17
    assert seconds((256,) * length) < 20 * seconds(tuple(300 + at % 5000 for at in range(length)))


def test_a_draft_is_trusted_as_far_as_it_was_right() -> None:
    right, wrong = Draft(tuple(range(40)), 0), Draft(tuple(range(40)), 0)
    right.follow(list(range(20)), 20)
    wrong.follow([at + at % 5 // 4 for at in range(20)], 20)
    assert right.expected(8) > 6 > 4 > wrong.expected(8) > 1


def decoding(draft: tuple[int, ...] = tuple(range(100)), so_far: int = 0) -> Chunk:
    """A sequence that has followed its draft so far."""
    request = Request("r", "m", (7, 7, 7), SamplingParams(max_tokens=90), draft=draft)
    tokens = [*request.prompt, *draft[:so_far]]
    sequence = Sequence(request, 0, 0, tokens, 93, frozenset(), KVTables(1, 4, b"key").table(""), 0)
    if sequence.draft is not None:
        sequence.draft.follow(tokens, so_far)
    return Chunk(sequence, len(tokens) - 1, 1)


def test_a_draft_that_is_right_for_thousands_of_tokens_is_followed_to_its_end() -> None:
    tokens = tuple(at % 97 for at in range(4000))
    draft, answer = Draft(tokens, 0), list[int]()
    while draft.left:
        proposed = len(draft.propose(31))
        assert 0 < draft.expected(proposed) <= proposed
        answer += tokens[len(answer) : len(answer) + proposed]
        draft.follow(answer, proposed, proposed)
    assert (draft.accepted, draft.rejected) == (4000, 0)


def test_a_step_has_as_many_proposed_tokens_as_it_gains_by() -> None:
    planner, one = Planner(), [decoding(so_far=20)]

    def planned(room: int = 100, chunks: Seq[Chunk] = one) -> list[int]:
        plan = planner.plan(chunks, [chunk.sequence.draft for chunk in chunks], room)
        return [plan.get(number, 0) for number in range(len(chunks))]

    def checked(tokens: int, seconds: float) -> None:
        planner.see(
            [Chunk(one[0].sequence, 22, tokens, one[0].sequence.request.draft[20 : 20 + tokens - 1])], 1, seconds
        )

    assert planned() == [0], "nobody knows what a step without any takes"
    planner.see(one, 1, 1.0)
    (first,) = planned()
    assert first > 1
    assert planned(2) == [2]
    assert planned(chunks=[decoding(so_far=88)]) == [1], "the last token that there is room for comes behind it"
    checked(32, 1.1)
    assert planned() == [31]
    checked(16, 1.1)
    for _ in range(4):
        checked(32, 30.0)
    assert planned() == [15]
    assert planned(chunks=[decoding(()), decoding(so_far=20)]) == [0, 0], "nothing is known of steps of two"
    planner.see([decoding(), decoding()], 1, 1.0)
    assert planned(chunks=[decoding(()), decoding(so_far=20)]) == [0, 7], "17 tokens would take as long as 32"
    for _ in range(4):
        checked(32, 2.0)
        checked(16, 1.8)
        checked(4, 1.4)
    assert planned() == [31]
    assert planned(chunks=[decoding(()), decoding(so_far=20)]) == [0, 3], "others would wait twice as long"
    assert planned(chunks=[Chunk(decoding().sequence, 0, 2), decoding(so_far=20)]) == [0, 0], "a prompt is read"


def test_small_models_that_take_many_steps_in_one_call_have_nothing_checked_that_takes_longer() -> None:
    planner, one = Planner(), [decoding(so_far=60)]
    planner.see(one, 64, 0.64)
    drafted = one[0].sequence.request.draft[60:91]
    for count in (1, 3, 7, 15, 31):
        planner.see([Chunk(one[0].sequence, 62, 1 + count, drafted[:count])], 1, 0.5)
    assert not planner.plan(one, [one[0].sequence.draft], 100)
    for _ in range(9):
        planner.see(one, 64, 0.64)
    assert planner.plan(one, [one[0].sequence.draft], 100), "it is tried again after a while"


@pytest.mark.parametrize(
    ("chosen", "drafted", "holds"),
    [
        ((4,), (), 1),
        ((-1,), (), 0),
        ((4, 5, 6), (4, 5), 3),
        ((4, 5, 6), (4, 7), 2),
        ((4, 5, 6), (3, 5), 1),
        ((4, 0, 6), (4, 0), 2),
        ((4, 5, -1), (4, 5), 2),
        ((-1, 5, 6), (4, 5), 0),
    ],
)
def test_chosen_tokens_hold_as_long_as_the_draft_was_right(
    chosen: tuple[int, ...], drafted: tuple[int, ...], holds: int
) -> None:
    assert holding(chosen, drafted, {0}) == holds
