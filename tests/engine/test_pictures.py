"""Pictures in prompts: the text that follows is what transformers writes, whatever happens around it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from engine_site import StartLine, serving
from seeing_models import SEEING, write_seeing

from headgate.engine.local import LocalModel
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings
from headgate.engine.text.pictures import Picture, Sight

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


@pytest.fixture(scope="module", params=SEEING)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeing(tmp_path_factory.mktemp("sees") / request.param, request.param)


class Oracle:
    def __init__(self, folder: Path) -> None:
        self._model = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
        self._processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
        self._options = (
            {} if self._model.config.model_type != "mistral3" else {"patch_size": {"height": 28, "width": 28}}
        )

    def likeliest(self, prompt: Sequence[int], pictures: Sequence[Picture], told: list[int]) -> list[int]:
        """As `greedy_oracle.likeliest`, with all of the pictures processed together."""
        features = self._processor([p.pixels for p in pictures], return_tensors="pt", **self._options)
        with torch.inference_mode():
            logits = self._model(torch.tensor([[*prompt, *told[:-1]]]), **features).logits[0]
        return logits[len(prompt) - 1 :].argmax(-1).tolist()


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Oracle:
    return Oracle(folder)


def test_it_writes_what_transformers_writes(folder: Path, oracle: Oracle) -> None:
    line = StartLine()
    # Seven tokens of a step cut every picture in parts, and rows of its neighbours stand before it.
    with serving(folder, EngineSettings(max_step_tokens=7, max_running=4, block_size=4), clock=line) as model:
        assert model.info.sees
        asked = [look(model, ONE, WIDE), look(model, TWO, WIDE, TALL), look(model, ONE, OTHER)]
        plain = asyncio.run(model.render_chat([{"role": "user", "content": "the fox"}])), ()
        everyone = [*asked, plain]
        told = asyncio.run(line.together(model, [write(model, each) for each in everyone]))
        again = [asyncio.run(write(model, each)) for each in everyone]
    assert again == told
    assert told[0] != told[2]
    for (prompt, _), pictures, one in zip(asked, ((WIDE,), (WIDE, TALL), (OTHER,)), told, strict=False):
        assert oracle.likeliest(prompt, pictures, one) == one


def test_only_the_same_picture_is_found(folder: Path) -> None:
    with serving(folder, EngineSettings(block_size=4)) as model:
        asked, other = look(model, ONE, WIDE), look(model, ONE, OTHER)
        assert asked[0] == other[0]
        before = asked[1][0].start
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
