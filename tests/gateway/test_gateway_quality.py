"""What was learned of the models, on its way from its file to the decision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gateway_fakes import FakeDestination
from road_site import ASK

from headgate.cache.embedder import default_folder
from headgate.gateway.quality import QualityError, learned
from headgate.gateway.request import Message
from headgate.gateway.routes import Routes
from headgate.gateway.settings import Settings
from headgate.gateway.teams.keys import Principal
from headgate.routing.classes import TaskClassifier
from headgate.routing.quality import FITTED, FittedQuality
from headgate.routing.tasks import load_tasks
from headgate.routing.types import Quality, RouteFeatures

DEMO = [
    {"id": "demo-student", "path": "demo:student", "tier": "small"},
    {"id": "demo-teacher", "path": "demo:teacher", "tier": "large"},
]
ANYBODY = Principal("red", None)


class SureByState:
    """Believes the small model as far as its state says, and without a state not at all."""

    wants_state = True

    def estimate(self, features: RouteFeatures, _task: str) -> Quality:
        if features.state is None:
            return Quality(0.1, 0.9, "embedding")
        return Quality(float(features.state[0]), 0.9, "probe")


def routes(small: FakeDestination, **routing: object) -> Routes:
    models = [{"id": "small-1", "path": "x", "tier": "small"}, {"id": "large-1", "path": "x", "tier": "large"}]
    settings = Settings(models=models, routing=routing)
    classifier = TaskClassifier(load_tasks())
    found = {"quality": SureByState(), "thresholds": {"probe": 0.7, "embedding": 0.05}}
    return Routes(
        [small, FakeDestination("large-1")], {"small-1": "small", "large-1": "large"}, classifier, settings, **found
    )


async def chosen(over: Routes) -> tuple[str, str]:
    request = replace(ASK, model="auto", messages=(Message("user", "Hello!"),))
    route = (await over.plan(request, None, ANYBODY)).route
    return route.model, route.reason


@pytest.mark.parametrize(("sure", "model"), [(0.69, "large-1"), (0.71, "small-1")])
async def test_the_state_decides_against_its_own_calibrated_threshold(sure: float, model: str) -> None:
    small = FakeDestination("small-1", state=np.array([sure], np.float32))
    tier = model.split("-")[0]
    assert await chosen(routes(small, probe=True)) == (model, f"quality:{tier}")


async def test_without_the_probe_the_embedding_decides_and_a_stated_threshold_replaces_the_calibrated() -> None:
    small = FakeDestination("small-1", state=np.array([0.0], np.float32))
    assert await chosen(routes(small)) == ("small-1", "quality:small")
    assert await chosen(routes(small, threshold=0.2)) == ("large-1", "quality:large")


async def test_a_model_that_gives_no_state_is_judged_without() -> None:
    assert await chosen(routes(FakeDestination("small-1"), probe=True)) == ("small-1", "quality:small")


def test_the_bundled_estimates_are_of_the_bundled_pair() -> None:
    found = learned(Settings(models=DEMO), default_folder())
    assert found is not None
    assert set(found.thresholds) == {"probe", "embedding"}
    assert all(0 < threshold <= 1 for threshold in found.thresholds.values())


def test_other_models_have_none_and_a_file_of_others_is_refused(tmp_path: Path) -> None:
    turned = [{**DEMO[0], "tier": "large"}, {**DEMO[1], "tier": "small"}]
    assert learned(Settings(models=turned), None) is None
    assert learned(Settings(models=DEMO[:1]), None) is None
    assert learned(Settings(models=DEMO, routing={"quality": None}), None) is None
    given = str(FITTED / "demo.safetensors")
    with pytest.raises(QualityError, match=r"routing\.quality is '.*small model .* serves"):
        learned(Settings(models=turned, routing={"quality": given}), None)
    with pytest.raises(QualityError, match="cannot be read"):
        learned(Settings(models=DEMO, routing={"quality": str(tmp_path / "none")}), None)


def test_a_promise_that_nothing_keeps_is_refused_with_the_best_that_can_be_kept() -> None:
    with pytest.raises(QualityError, match=r"routing\.max_loss is 0\.0: at most 0\.00% worse .* cannot be shown"):
        learned(Settings(models=DEMO, routing={"max_loss": 0}), None)
    best = FittedQuality.load(FITTED / "demo.safetensors").threshold("embedding", loss=0.1)
    found = learned(Settings(models=DEMO, routing={"max_loss": 0.1}), None)
    assert found is not None
    assert found.thresholds["embedding"] == best
