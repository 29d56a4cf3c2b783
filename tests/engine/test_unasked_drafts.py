"""What engines propose unasked, by a small model or by what was said before: answers are those that come without."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_site import StartLine
from safetensors.torch import load_file, save_file
from tiny_models import MakeCheckpoint, write_tokenizer

from headgate.engine.engine import Engine
from headgate.engine.errors import CheckpointError
from headgate.engine.front.local import LocalModel
from headgate.engine.kernels.cpu.kernels import native_status
from headgate.engine.quant.linear import WeightFormat
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.engine.speculation.lookup import Lookup
from headgate.engine.speculation.odds import Odds, Prior

NEW = 40
PLAIN = EngineSettings(kernels="reference", block_size=4, prompt_lookup=False)


class Site(dict[str, LocalModel]):
    """Models of an engine whose steps take equally long by its clock: all that is proposed is worth checking."""

    def __init__(self, models: Mapping[str, LocalModel], line: StartLine) -> None:
        super().__init__(models)
        self.line = line
        """Who asks together is there before a step begins: who came meanwhile would look at the clock once more."""


@contextmanager
def serving(settings: EngineSettings, *specs: ModelSpec) -> Iterator[Site]:
    line = StartLine(map(float, itertools.count()).__next__)
    engine = Engine(settings, clock=line)
    engine.load(*specs)
    engine.start()
    try:
        yield Site(engine.models, line)
    finally:
        engine.stop()


@pytest.fixture(scope="module")
def alike(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that thinks nearly as that of `tiny_checkpoint` does."""
    folder = tmp_path_factory.mktemp("alike") / "model"
    shutil.copytree(tiny_checkpoint, folder)
    tensors, noise = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(3)
    for tensor in tensors.values():
        tensor += 0.1 * tensor.float().std().nan_to_num(0.0) * torch.randn(tensor.shape, generator=noise)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


async def ask(model: LocalModel, name: str, length: int, sampling: SamplingParams) -> list[object]:
    prompt = torch.randint(3, 320, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    tokens, logprobs, ends = list[object](), list[object](), list[object]()
    async for delta in model.generate(name, tuple(prompt), sampling, tenant=name):
        tokens += delta.token_ids
        logprobs += delta.logprobs
        if delta.finish is not None:
            ends += [delta.finish.reason, delta.finish.completion_tokens, delta.finish.accepted]
    return [*tokens, *logprobs, *ends]


def asked(site: Site, name: str, sampling: SamplingParams) -> list[list[object]]:
    """What a model answers to three prompts at once."""

    async def together() -> list[list[object]]:
        askers = [ask(site[name], f"{name}-{length}", length, sampling) for length in (7, 40, 90)]
        return await site.line.together(site[name], askers)

    return asyncio.run(together())


GREEDY = SamplingParams(temperature=0.0, max_tokens=NEW, ignore_eos=True)
DRAWN = replace(GREEDY, temperature=0.8, top_p=0.9, seed=4)


def guessed(model: LocalModel, source: str) -> tuple[int, int]:
    return model.stats().guessed.get(source, (0, 0))


@pytest.mark.skipif(not native_status().usable, reason=f"native kernels: {native_status().why}")
@pytest.mark.parametrize("weights", ["native", "int8"])
def test_a_small_model_changes_no_bit(tiny_checkpoint: Path, alike: Path, weights: WeightFormat) -> None:
    settings = EngineSettings(prompt_lookup=False, max_step_tokens=80)
    large = ModelSpec("large", tiny_checkpoint, dtype="bfloat16", weights=weights)
    samplings = replace(GREEDY, logprobs=2), DRAWN, replace(DRAWN, logit_bias=((33, 2.0),), seed=7)
    with serving(settings, large) as models:
        wanted = [asked(models, "large", each) for each in samplings]
    with serving(settings, ModelSpec("small", alike), replace(large, drafter="small")) as models:
        for sampling, own in zip(samplings, wanted, strict=True):
            before = guessed(models["large"], "model")
            assert asked(models, "large", sampling) == own
            right, wrong = (now - then for now, then in zip(guessed(models["large"], "model"), before, strict=True))
            assert right > 20, "noise is the same for both, so that drawn tokens are drafted as well"
            assert wrong > 0, "it is another model"
        # What the small one is asked itself is as it would be, with what was drafted in its cache.
        beside = asked(models, "small", GREEDY)
        assert models["small"].stats().kv_blocks_used == models["large"].stats().kv_blocks_used == 0
    with serving(settings, ModelSpec("small", alike)) as models:
        assert asked(models, "small", GREEDY) == beside


def test_a_small_model_that_sleeps_does_not_draft(tiny_checkpoint: Path, alike: Path) -> None:
    specs = ModelSpec("small", alike), ModelSpec("large", tiny_checkpoint, dtype="float32", drafter="small")
    with serving(PLAIN, *specs) as models:
        wanted = asked(models, "large", GREEDY)
        drafted = sum(guessed(models["large"], "model"))
        assert drafted
        sleeper = models["small"].sleeper
        assert sleeper is not None
        sleeper.sleep().result(10)
        assert asked(models, "large", GREEDY) == wanted
        assert sum(guessed(models["large"], "model")) == drafted
        sleeper.wake().result(10)
        assert asked(models, "large", GREEDY) == wanted
        assert sum(guessed(models["large"], "model")) > drafted


def test_numbers_that_a_small_model_breaks_are_its_own(tiny_checkpoint: Path, alike: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(alike, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"][::3] = torch.nan
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].nan_to_num(0.0)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    large = ModelSpec("large", tiny_checkpoint, dtype="float32")
    with serving(PLAIN, large) as models:
        wanted = asked(models, "large", GREEDY)
    with serving(PLAIN, ModelSpec("small", folder, dtype="float32"), replace(large, drafter="small")) as models:
        for _ in range(2):
            assert asked(models, "large", GREEDY) == wanted
        assert models["small"].stats().kv_blocks_used == 0


def test_what_a_request_says_of_tokens_that_the_small_model_lacks_is_no_matter_to_it(
    make_checkpoint: MakeCheckpoint, alike: Path
) -> None:
    folder = make_checkpoint("qwen3", vocab_size=352)
    write_tokenizer(folder)
    large = ModelSpec("large", folder, dtype="float32")
    biased = replace(GREEDY, logit_bias=((351, 2.0), (5, 1.0)), begin_suppress_tokens=(350, 6), max_tokens=15)
    with serving(PLAIN, large) as models:
        wanted = asked(models, "large", biased)
    with serving(PLAIN, ModelSpec("small", alike, dtype="float32"), replace(large, drafter="small")) as models:
        assert asked(models, "large", biased) == wanted
        assert sum(guessed(models["large"], "model"))


def test_who_cannot_draft_is_refused_by_name(tiny_checkpoint: Path, alike: Path, tmp_path: Path) -> None:
    large = ModelSpec("large", tiny_checkpoint, drafter="small")
    with pytest.raises(CheckpointError, match="drafter 'small' is no other loaded model; there are 'tiny'"):
        Engine(PLAIN).load(ModelSpec("tiny", alike), large)
    with pytest.raises(CheckpointError, match="drafter 'large' is no other loaded model; there are none"):
        Engine(PLAIN).load(replace(large, drafter="large"))
    folder = tmp_path / "other"
    shutil.copytree(alike, folder)
    written = json.loads((folder / "tokenizer.json").read_text())
    words = sorted(written["model"]["vocab"].items(), key=lambda word: word[1])
    (first, one), (second, other) = words[40], words[41]
    written["model"]["vocab"] |= {first: other, second: one}
    (folder / "tokenizer.json").write_text(json.dumps(written))
    with pytest.raises(CheckpointError, match="has another vocabulary"):
        Engine(PLAIN).load(ModelSpec("small", folder), large)


@pytest.mark.skipif(not native_status().usable, reason=f"native kernels: {native_status().why}")
def test_what_was_said_before_changes_no_bit(tiny_checkpoint: Path) -> None:
    spec, samplings = ModelSpec("m", tiny_checkpoint, dtype="bfloat16"), (replace(GREEDY, logprobs=2), DRAWN)
    with serving(EngineSettings(prompt_lookup=False), spec) as models:
        wanted = [asked(models, "m", each) for each in samplings]
        assert not models["m"].stats().guessed
    with serving(EngineSettings(), spec) as models:
        assert [asked(models, "m", each) for each in samplings] == wanted
        right, _ = guessed(models["m"], "prompt")
        assert right > 20, "random models say the same again and again"


def test_the_latest_place_is_looked_up_first_in_the_answer_then_in_the_prompt() -> None:
    prompt = [1, 2, 3, 4, 9, 1, 2, 3, 5, 6]
    lookup, tokens = Lookup(len(prompt), Odds(1, 1), Odds(3, 1)), [*prompt]

    def said(*new: int) -> list[int]:
        tokens.extend(new)
        lookup.follow(tokens, len(new))
        return list(lookup.propose(3)) if lookup.left else []

    assert said(1, 2) == []
    assert said(3) == [5, 6, 1], "the later one of two places; what comes behind the prompt is the answer"
    assert said(5) == [6, 1, 2]
    assert said(7) == [], "the place is lost"
    assert said(1, 2, 3) == [5, 7, 1], "in the answer it came later"
    assert said(4) == [9, 1, 2], "those three came in the prompt alone"


def test_it_is_trusted_as_far_as_it_was_right() -> None:
    prompt = [*range(20)] * 2
    right, wrong = Lookup(len(prompt), Odds(1, 1), Odds(3, 1)), Lookup(len(prompt), Odds(1, 1), Odds(3, 1))
    right.follow([*prompt, *range(12)], 12)
    tokens = [*prompt]
    for at in range(12):
        # Three of the prompt, and then something else.
        tokens += [*range(at, at + 3), 99]
        wrong.follow(tokens[:-1], 3)
        wrong.follow(tokens, 1)
    wrong.follow([*tokens, 1, 2, 3], 3)
    right.follow([*prompt, *range(13)], 1)
    assert right.left
    assert wrong.left
    assert right.first > 0.5 > 0.2 > wrong.first
    assert right.expected(8) > 2 > 0.5 > wrong.expected(8)


def test_what_is_known_of_earlier_answers_begins_those_after_them() -> None:
    prior = Prior(3, 1)
    for _ in range(10):
        long, short = prior.begin(), prior.begin()
        for _ in range(100):
            long.see(so=True)
        for _ in range(8):
            short.see(so=False)
    assert prior.begin().share == pytest.approx(0.5, abs=0.15), "a long answer counts no more than a short one"
    for _ in range(20):
        wrong = prior.begin()
        for _ in range(8):
            wrong.see(so=False)
    assert prior.begin().share < 0.05
    for _ in range(200):
        prior.begin()
    assert prior.begin().share > 0.5, "nothing was heard of it for long"
