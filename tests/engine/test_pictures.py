"""Pictures in prompts: the text that follows is what transformers writes, whatever happens around it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from adapter_files import with_tensors, write_adapter
from engine_site import StartLine, serving
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from seeing_models import SEEING, write_seeing
from tiny_models import DEEP_EYES
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from headgate.engine.engine import Engine
from headgate.engine.front.local import LocalModel
from headgate.engine.request import Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.engine.text.pictures import Picture, Sight, turning

NEW = 8
Asked = tuple[tuple[int, ...], tuple[Sight, ...]]


def picture(seed: int, height: int, width: int) -> Picture:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Picture(pixels, sha256(pixels.tobytes()).digest())


WIDE, TALL, OTHER = picture(1, 60, 90), picture(2, 110, 40), picture(3, 60, 90)


def turn(*parts: str | None, role: str = "user") -> dict[str, Any]:
    """None stands for a picture."""
    content = [{"type": "image"} if part is None else {"type": "text", "text": part} for part in parts]
    return {"role": role, "content": content}


ONE = [turn("what is the ", None, " quick brown")]
TWO = [turn(None, "the lazy dog"), turn("and then the other", role="assistant"), turn("what is ", None)]


async def write(model: LocalModel, asked: Asked, new: int = NEW, **how: Any) -> list[int]:
    params = SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True)
    told: list[int] = []
    async for delta in model.generate("r", asked[0], params, sights=asked[1], **how):
        told.extend(delta.token_ids)
        assert delta.finish is None or delta.finish.error is None
    return told


def look(model: LocalModel, messages: list[dict[str, Any]], *pictures: Picture) -> Asked:
    return asyncio.run(model.look(messages, None, pictures))


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeing(tmp_path_factory.mktemp("one") / "mistral3", "mistral3")


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeing(tmp_path_factory.mktemp("one") / "qwen3_5", "qwen3_5")


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeing(tmp_path_factory.mktemp("one") / "gemma3", "gemma3")


@pytest.fixture(scope="module", params=SEEING)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeing(tmp_path_factory.mktemp("sees") / request.param, request.param)


class Oracle:
    def __init__(self, folder: Path) -> None:
        self._model = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
        self._processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
        options = {"mistral3": {"patch_size": {"height": 28, "width": 28}}, "internvl": {"crop_to_patches": True}}
        self._options = options.get(self._model.config.model_type, {})

    def logits(self, prompt: Sequence[int], pictures: Sequence[Picture], told: list[int]) -> torch.Tensor:
        """Of each place where a token is told, with all of the pictures processed together."""
        features = self._processor([p.pixels for p in pictures], return_tensors="pt", **self._options)
        for unused in ("num_patches", "num_crops"):
            features.pop(unused, None)
        ids = torch.tensor([[*prompt, *told[:-1]]])
        kind = "token_type_ids" if self._model.config.model_type == "gemma3" else "mm_token_type_ids"
        if "image_grid_thw" in features or kind == "token_type_ids":
            features[kind] = (ids == self._model.config.image_token_id).int()
        with torch.inference_mode():
            logits = self._model(ids, **features).logits[0]
        return logits[len(prompt) - 1 :]


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Oracle:
    return Oracle(folder)


def test_it_writes_what_transformers_writes(folder: Path, oracle: Oracle) -> None:
    line = StartLine()
    # Seven tokens of a step cut every picture in parts, but those of 16 that go whole, and rows of its neighbours stand
    # before it.
    tokens = 21 if folder.name == "gemma3" else 7
    with serving(folder, EngineSettings(max_step_tokens=tokens, max_running=4, block_size=4), clock=line) as model:
        assert model.info.sees
        asked = [look(model, ONE, WIDE), look(model, TWO, WIDE, TALL), look(model, ONE, OTHER)]
        plain = asyncio.run(model.render_chat([{"role": "user", "content": "the fox"}])), ()
        everyone = [*asked, plain]
        told = asyncio.run(line.together(model, [write(model, each) for each in everyone]))
        again = [asyncio.run(write(model, each)) for each in everyone]
        scores = [
            asyncio.run(model.score("s", each[0], tuple(told[0]), sights=each[1])) for each in (asked[0], asked[2])
        ]
    assert again == told
    one, other = ([token.logprob for token in score.tokens] for score in scores)
    assert one != pytest.approx(other, abs=0.01), "another picture of the same size makes no difference"
    seen = (WIDE,), (WIDE, TALL), (OTHER,)
    logits = [oracle.logits(each[0], pictures, one) for each, pictures, one in zip(asked, seen, told, strict=False)]
    assert [each.argmax(-1).tolist() for each in logits] == told[:3]
    for score, rows in ((one, logits[0]), (other, oracle.logits(asked[2][0], (OTHER,), told[0]))):
        expected = rows.log_softmax(-1).gather(-1, torch.tensor(told[0]).unsqueeze(-1)).flatten().tolist()
        assert score == pytest.approx(expected, abs=1e-4)


def test_only_the_same_picture_is_found(folder: Path) -> None:
    with serving(folder, EngineSettings(block_size=4)) as model:
        asked, other = look(model, ONE, WIDE), look(model, ONE, OTHER)
        assert asked[0] == other[0]
        # Of a model that keeps states the blocks before the picture are no use without the state behind them.
        before = 0 if model.info.state_bytes else asked[1][0].start
        first = asyncio.run(write(model, asked))
        full = (len(asked[0]) - 1) // 4 * 4
        assert model.resident(asked[0], "", asked[1]) >= full
        assert model.resident(other[0], "", other[1]) == before // 4 * 4 == model.resident(other[0], "")
        assert asyncio.run(write(model, asked)) == first
        hits = model.stats().prefix_hits
        assert hits >= full
        asyncio.run(write(model, other))
        assert model.stats().prefix_hits == hits + before // 4 * 4
        # The next turn goes on behind what the first one left.
        following = look(model, [*ONE, turn("the fox", role="assistant"), turn("and ", None)], WIDE, TALL)
        assert model.resident(following[0], "", following[1]) >= full // 2


def test_who_is_preempted_sees_again(mistral: Path) -> None:
    line = StartLine()
    with serving(
        mistral, EngineSettings(block_size=4, max_step_tokens=16, max_running=4), blocks=26, clock=line
    ) as model:
        everyone = [look(model, ONE, WIDE), look(model, ONE, OTHER), look(model, ONE, TALL)]
        alone = [asyncio.run(write(model, each, 24)) for each in everyone]
        before = model.stats().preemptions
        assert asyncio.run(line.together(model, [write(model, each, 24) for each in everyone])) == alone
        assert model.stats().preemptions > before


def test_a_step_looks_at_one_picture(mistral: Path) -> None:
    with serving(mistral, EngineSettings(prefix_cache=False)) as model:
        asked, same = look(model, TWO, WIDE, TALL), look(model, TWO, OTHER, OTHER)
        for each, steps, looks in ((asked, 2, 2), (asked, 1, 0), (same, 1, 1)):
            before = model.stats()
            asyncio.run(write(model, each, 1))
            after = model.stats()
            assert after.steps - before.steps == steps
            assert after.prompt_tokens - before.prompt_tokens == len(each[0])
            assert after.pictures - before.pictures == looks
            took = after.picture_seconds - before.picture_seconds
            assert (0 < took < after.step_seconds - before.step_seconds) if looks else took == 0


@pytest.mark.parametrize("kind", ["mistral", "qwen"])
def test_choices_drafts_scores_probes_and_pins(kind: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(kind)

    async def ask(model: LocalModel, asked: Asked) -> None:
        prompt, sights = asked
        told = await write(model, asked)
        params = SamplingParams(temperature=0.0, max_tokens=NEW, ignore_eos=True)
        choices = list[list[int]]([[], []])
        async for delta in model.generate("r", prompt, params, n=2, sights=sights):
            choices[delta.index].extend(delta.token_ids)
        assert choices == [told, told]
        assert await write(model, asked, draft=tuple(told)) == told
        score = await model.score("s", prompt, tuple(told), sights=sights)
        assert all(each.likeliest for each in score.tokens)
        other = await model.score("s", prompt, tuple(told), sights=(replace(sights[0], digest=b"other"),))
        assert [each.logprob for each in other.tokens] == pytest.approx(
            [each.logprob for each in score.tokens], abs=1e-4
        )
        states = [(await model.probe("p", prompt, sights=seen)).state for seen in (sights, (), sights)]
        assert np.array_equal(states[0], states[2])
        assert not np.allclose(states[0], states[1])
        pinned = await model.pin(prompt, "", sights)
        assert pinned is not None
        assert await write(model, asked) == told
        model.unpin(pinned)

    for cached in (True, False):
        with serving(folder, EngineSettings(block_size=4, prefix_cache=cached)) as model:
            asyncio.run(ask(model, look(model, ONE, WIDE)))


def test_it_sees_after_a_sleep(mistral: Path) -> None:
    with serving(mistral, EngineSettings()) as model:
        asked = look(model, ONE, WIDE)
        told = asyncio.run(write(model, asked))
        assert model.sleeper is not None
        model.sleeper.sleep().result()
        assert asyncio.run(write(model, asked)) == told


def test_a_picture_that_cannot_be_seen_ends_its_own_request(mistral: Path) -> None:
    async def ask(model: LocalModel, asked: Asked) -> str | None:
        params = SamplingParams(temperature=0.0, max_tokens=NEW)
        finish = [d.finish async for d in model.generate("r", asked[0], params, sights=asked[1])][-1]
        assert finish is not None
        return finish.error

    async def both(model: LocalModel, broken: Asked, sound: Asked) -> tuple[str | None, list[int]]:
        return await asyncio.gather(ask(model, broken), write(model, sound))

    with serving(mistral, EngineSettings()) as model:
        asked = look(model, ONE, WIDE)
        told = asyncio.run(write(model, asked))
        (sight,) = look(model, ONE, OTHER)[1]
        wrong = replace(sight, features={**sight.features, "image_sizes": torch.tensor([[28, 56]])})
        error, found = asyncio.run(both(model, (asked[0], (wrong,)), asked))
        assert error is not None
        assert "12 placeholders" in error
        assert found == told
        assert model.stats().failed_steps == 0


def test_an_adapter_changes_what_writes_and_not_what_sees(mistral: Path, tmp_path: Path) -> None:
    adapter, merged = write_adapter(mistral, tmp_path / "adapter", ("q_proj", "up_proj"))
    text = [name for name in merged if "language_model" in name]
    only = {name.removesuffix(".weight") for name in text}
    with_tensors(lambda tensors: [tensors.pop(n) for n in list(tensors) if not any(each in n for each in only)])(
        tmp_path / "adapter"
    )
    told = []
    for how in ({"adapter": adapter}, {"adapters": {"tuned": adapter}}):
        engine = Engine(EngineSettings(max_step_tokens=7, max_running=4, block_size=4))
        engine.load(ModelSpec("m", mistral, dtype="float32", **how))
        engine.start()
        try:
            model = engine.models.get("tuned", engine.models["m"])
            told.append(asyncio.run(write(model, look(model, ONE, WIDE))))
        finally:
            engine.stop()
    with serving(mistral, EngineSettings()) as model:
        plain = asyncio.run(write(model, look(model, ONE, WIDE)))
    assert told[0] == told[1] != plain


@pytest.mark.parametrize(
    ("messages", "pictures", "error"),
    [
        ([turn("what is [IMG]", None)], [WIDE], "2 marks of pictures for 1 pictures.*'\\[IMG\\]'"),
        ([turn("what is", None)], [WIDE, WIDE], "1 marks of pictures for 2"),
        (
            [turn("what is", None)],
            [picture(1, 1, 4000)],
            r"pictures\[0\] of 4000 x 1 pixels cannot be seen.*: one side may be 200",
        ),
        ([turn("what is", None)], [picture(1, 20, 28)], "too small; more than 28 x 28"),
        ([{"role": "user", "content": [{"type": "audio"}, {"type": "image"}]}], [WIDE], "of type 'audio'"),
    ],
)
def test_what_cannot_be_seen_is_told(
    mistral: Path, messages: list[dict[str, Any]], pictures: list[Picture], error: str
) -> None:
    with serving(mistral, EngineSettings()) as model, pytest.raises(ValueError, match=error):
        look(model, messages, *pictures)


def test_without_the_processors_file_it_writes_only(mistral: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(mistral, tmp_path / "text", ignore=shutil.ignore_patterns("preprocessor_config.json"))
    with serving(folder, EngineSettings()) as model:
        assert not model.info.sees
        with pytest.raises(ValueError, match="sees no pictures"):
            look(model, ONE, WIDE)
        sight = Sight(1, 1, b"", {}, np.arange(1))
        with pytest.raises(ValueError, match="1 pictures; model 'm' sees none"):
            asyncio.run(write(model, ((1, 2, 3), (sight,))))
        plain = asyncio.run(model.render_chat([{"role": "user", "content": "the fox"}])), ()
        assert len(asyncio.run(write(model, plain))) == NEW


def test_a_text_has_all_around_a_picture_before_it_is_cut_into_tokens(gemma: Path) -> None:
    with serving(gemma, EngineSettings()) as model:
        tokens, (sight,) = look(model, [turn("what\n", None, "\nis")], WIDE)
        shown = model.decode(tokens, special=True)
        assert shown.count("what\n\n\n[IMG]" + "<img>" * 16 + "[IMG_END]\n\n\nis") == 1
        assert asyncio.run(model.encode(shown, special=False)) == tokens
        assert model.decode(tokens[sight.start : sight.stop], special=True) == "[IMG]" + "<img>" * 16
        with pytest.raises(ValueError, match="2 marks of pictures for 1 pictures"):
            look(model, [turn("what is [IMG]", None)], WIDE)


def test_a_picture_of_which_a_part_is_cached_goes_on_there(gemma: Path) -> None:
    settings = EngineSettings(block_size=4, max_step_tokens=40, max_running=2)
    with serving(gemma, settings, blocks=30) as model:
        asked = look(model, ONE, WIDE)
        told, (first, behind) = asyncio.run(write(model, asked)), asked[1][0].seen
        found = set[bool]()
        for length in range(60, 100, 4):
            asyncio.run(write(model, (tuple((length + at) % 256 for at in range(length)), ()), 1))
            found.add(first < model.resident(asked[0], "", asked[1]) < behind)
            assert asyncio.run(write(model, asked)) == told
        assert True in found


def test_pictures_that_no_step_has_room_for_are_not_seen(gemma: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(gemma, EngineSettings(max_step_tokens=19, max_running=4)) as model:
        assert not model.info.sees
    assert (
        "a picture has 16 tokens, which one step has to compute; max_step_tokens less max_running is 15" in caplog.text
    )


def test_what_is_added_behind_all_layers_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    deep = {**DEEP_EYES, "deepstack_visual_indexes": [0, 1, 2]}
    with serving(write_seeing(tmp_path, "qwen3_vl", vision_config=deep), EngineSettings()) as model:
        assert not model.info.sees
    assert "deepstack_visual_indexes has 3 layers; fewer than 3 are accepted" in caplog.text


def test_sights_lie_in_their_prompt() -> None:
    sight = Sight(2, 3, b"", {}, np.arange(3))
    Request("r", "m", (1, 2, 3, 4, 5), sights=(sight,)).check(9)
    for sights in ((sight, sight), (replace(sight, start=3),), (replace(sight, tokens=0),)):
        with pytest.raises(ValueError, match=r"sights\[\d\] has tokens from"):
            Request("r", "m", (1, 2, 3, 4, 5), sights=sights).check(9)


@pytest.mark.parametrize(("kind", "weights"), [("mistral", "int8"), ("qwen", "native"), ("gemma", "int4")])
def test_it_sees_in_bfloat16_and_with_fewer_bits(kind: str, weights: Any, request: pytest.FixtureRequest) -> None:
    engine = Engine(EngineSettings())
    engine.load(ModelSpec("m", request.getfixturevalue(kind), dtype="bfloat16", weights=weights))
    engine.start()
    try:
        model = engine.models["m"]
        assert model.info.sees
        told = [asyncio.run(write(model, look(model, ONE, each))) for each in (WIDE, OTHER)]
        assert told[0] != told[1]
    finally:
        engine.stop()


def test_files_of_earlier_transformers_are_read(tmp_path: Path) -> None:
    """Qwen2.5-VL's publisher has the keys of the text model beside the others, and other names of tensors."""
    folder = write_seeing(tmp_path / "new", "qwen2_5_vl")
    old = shutil.copytree(folder, tmp_path / "old")
    config = json.loads((old / "config.json").read_text())
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    scaling = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    kept = {key: value for key, value in text.items() if key not in ("model_type", "layer_types")}
    vision = {**config["vision_config"], "model_type": "qwen2_5_vl"}
    flat = {**kept, **config, "vision_config": vision, "rope_scaling": scaling, "rope_theta": rope["rope_theta"]}
    (old / "config.json").write_text(json.dumps(flat))
    tensors = {}
    for name, tensor in load_file(old / "model.safetensors").items():
        name = name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")
        tensors[name] = tensor
    save_file(tensors, old / "model.safetensors", metadata={"format": "pt"})
    told = []
    for each in (folder, old):
        with serving(each, EngineSettings()) as model:
            assert model.info.sees
            told.append(asyncio.run(write(model, look(model, TWO, WIDE, TALL))))
    assert told[0] == told[1]


@given(st.data())
def test_tokens_behind_pictures_turn_as_if_these_were_as_long_as_their_longer_side(data: st.DataObject) -> None:
    kinds = st.one_of(st.just((0, 0)), st.tuples(st.integers(1, 4), st.integers(1, 4)))
    wanted, sights, now = list[tuple[int, int, int]](), list[Sight](), 0
    for rows, columns in data.draw(st.lists(kinds, min_size=1, max_size=6)):
        if not rows:
            wanted.append((now, now, now))
            now += 1
            continue
        count = rows * columns
        sights.append(Sight(len(wanted), count, b"", {}, np.arange(count), (rows, columns)))
        wanted.extend((now, now + row, now + column) for row in range(rows) for column in range(columns))
        now += max(rows, columns)
    start = data.draw(st.integers(0, len(wanted) - 1))
    stop = data.draw(st.integers(start + 1, len(wanted) + 3))
    wanted.extend((now + ahead,) * 3 for ahead in range(3))
    assert turning(sights, start, stop).T.tolist() == [list(each) for each in wanted[start:stop]]
