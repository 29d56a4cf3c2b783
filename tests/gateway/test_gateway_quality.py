"""What was learned of the models, on its way from its file to the decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from gateway_fakes import FakeDestination
from road_site import ASK, RED, Site

from headgate.cache.embedding.sentence_model import default_folder
from headgate.engine.errors import CheckpointError
from headgate.engine.text.stream import TextLogprob
from headgate.gateway.cli import main
from headgate.gateway.local.checkpoints import model_identity
from headgate.gateway.road.request import Chunk, Message
from headgate.gateway.routing.explain import route_report
from headgate.gateway.routing.quality import QualityError, learned
from headgate.gateway.routing.routes import Routes
from headgate.gateway.settings import Settings
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.record import RequestRecord
from headgate.routing.classes import TaskClassifier
from headgate.routing.core import cores
from headgate.routing.quality import FITTED, FittedQuality
from headgate.routing.tasks import load_tasks
from headgate.routing.types import Quality, RouteFeatures, Vector

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
            return Quality(0.1, 1.0, "embedding")
        return Quality(float(features.state[0]), 1.0, "probe")


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


class TellsHardFromEasy:
    """Embeds what holds the word "prove" far from everything else, and remembers what it was asked together."""

    name, dim = "fake", 2

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def embed(self, text: str, _scope: str = "") -> Vector:
        return np.array([0.0, 1.0] if "prove" in text else [1.0, 0.0], np.float32)

    async def sketch(self, _text: str, _scope: str = "") -> bytes:
        return b""

    async def embed_all(self, texts: Sequence[str], scope: str = "") -> list[Vector]:
        self.asked.append(list(texts))
        return [await self.embed(text, scope) for text in texts]


class SureByEnds:
    """Believes the small model by the first number of the reading it likes best."""

    wants_state = False

    def estimate(self, features: RouteFeatures, _task: str) -> Quality:
        assert features.vector is not None
        if features.cores is None:
            return Quality(float(features.vector[0]), 1.0, "embedding")
        told = [float(row[0]) for row in (features.vector, *features.cores)]
        return Quality(max(told), 1.0, "cores", tuple(told))


def test_what_was_learned_of_a_checkpoint_is_not_believed_of_its_adapter(tmp_path: Path) -> None:
    student, teacher = DEMO
    (tmp_path / "adapter_config.json").write_text("{}")
    bare, tuned = (Settings(models=[small, teacher]) for small in (student, {**student, "adapter": str(tmp_path)}))
    assert learned(bare, default_folder()) is not None
    assert learned(tuned, default_folder()) is None
    assert model_identity(bare.models[0]) != model_identity(tuned.models[0])
    missing = {**student, "adapter": "no/such/folder"}
    with pytest.raises(CheckpointError, match="the adapter of the model 'demo-student': no/such/folder: no"):
        model_identity(Settings(models=[missing]).models[0])


async def test_ends_of_the_text_are_judged_with_it_in_one_pass_where_the_settings_say_so() -> None:
    embedder, question = TellsHardFromEasy(), "Never mind that. What is the capital of France?"
    request = replace(ASK, model="auto", messages=(Message("user", f"prove the theorem. {question}"),))
    for judged, model in ((False, "large-1"), (True, "small-1")):
        models = [{"id": "small-1", "path": "x", "tier": "small"}, {"id": "large-1", "path": "x", "tier": "large"}]
        over = Routes(
            [FakeDestination("small-1"), FakeDestination("large-1")],
            {"small-1": "small", "large-1": "large"},
            TaskClassifier(load_tasks()),
            Settings(models=models, routing={"judge_cores": judged}),
            quality=SureByEnds(),
            thresholds={"cores": 0.5, "embedding": 0.5},
        )
        await over.understand(embedder)
        embedder.asked.clear()
        plan = await over.plan(request, None, ANYBODY)
        assert plan.route.model == model
        ends = cores(request.messages[0].content or "")
        assert embedder.asked == [[request.messages[0].content, *(ends if judged else ())]]
        # What the cache has embedded already is not embedded again.
        embedder.asked.clear()
        again = await over.plan(request, np.array([0.0, 1.0], np.float32), ANYBODY)
        assert again.route == plan.route
        assert embedder.asked == ([list(ends)] if judged else [])
        report = route_report(plan, "")
        assert report.quality is not None
        assert report.quality.readings == ([0.0, *(float("prove" not in end) for end in ends)] if judged else [])
        assert any(line.startswith("readings     whole text 0.00, cores ") for line in report.lines) == judged


async def test_a_model_that_gives_no_state_is_judged_without() -> None:
    assert await chosen(routes(FakeDestination("small-1"), probe=True)) == ("small-1", "quality:small")


def test_the_bundled_estimates_are_of_the_bundled_pair() -> None:
    found = learned(Settings(models=DEMO), default_folder())
    assert found is not None
    assert set(found.thresholds) == {"embedding"}
    for setting, sources in (({"probe": True}, {"probe", "embedding"}), ({"judge_cores": True}, {"cores"})):
        found = learned(Settings(models=DEMO, routing=setting), default_folder())
        assert found is not None
        assert set(found.thresholds) == sources
        assert all(0 < threshold <= 1 for threshold in found.thresholds.values())


def test_probe_and_cores_are_not_judged_together_and_a_file_without_either_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="judge_cores is of estimates from embeddings, which probe replaces"):
        Settings(models=DEMO, routing={"probe": True, "judge_cores": True})
    bundled = FittedQuality.load(FITTED / "demo.safetensors")
    file = tmp_path / "probe.safetensors"
    replace(bundled, estimators={"probe": bundled.estimators["probe"]}).save(file)
    with pytest.raises(QualityError, match="it estimates from probe; cores is used here"):
        learned(Settings(models=DEMO, routing={"quality": str(file), "judge_cores": True}), default_folder())


def test_of_several_models_of_a_tier_the_estimates_are_of_those_they_were_learned_of() -> None:
    copy, other = {**DEMO[0], "id": "copy"}, {"id": "other", "path": "nobody/knows", "tier": "small"}
    found = learned(Settings(models=[other, *DEMO, copy]), None)
    assert found is not None
    assert found.models == {"demo-student", "demo-teacher", "copy"}
    crossed = [{**DEMO[1], "id": "third", "tier": "small"}, *DEMO]
    found = learned(Settings(models=crossed), None)
    assert found is not None
    assert found.models == {"demo-student", "demo-teacher"}


async def test_the_model_that_estimates_are_of_is_probed_and_chosen_among_its_tier() -> None:
    models = [
        {"id": "small-0", "path": "x", "tier": "small"},
        {"id": "small-1", "path": "x", "tier": "small"},
        {"id": "large-1", "path": "x", "tier": "large"},
    ]
    fakes = [
        FakeDestination("small-0", state=np.array([0.1], np.float32)),
        FakeDestination("small-1", state=np.array([0.9], np.float32)),
        FakeDestination("large-1"),
    ]
    over = Routes(
        fakes,
        {m["id"]: "small" if m["tier"] == "small" else "large" for m in models},
        TaskClassifier(load_tasks()),
        Settings(models=models, routing={"probe": True}),
        quality=SureByState(),
        thresholds={"probe": 0.7, "embedding": 0.7},
        estimated={"small-1", "large-1"},
    )
    assert await chosen(over) == ("small-1", "quality:small")


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


@pytest.mark.parametrize(
    ("routing", "line", "said"),
    [
        ("max_loss: 0.0", 6, "'routing.max_loss': at most 0.00% worse"),
        ("max_device_s_per_1000: 0.001", 6, "'routing.max_device_s_per_1000': at most 0.001 device seconds"),
        ("quality: none.safetensors", 6, "'routing.quality': none.safetensors: the quality estimates cannot be read"),
        (
            f"quality: {FITTED / 'demo.safetensors'}",
            6,
            "'routing.quality': the quality estimates are of the small model",
        ),
        ("cascade:\n    enabled: true\n    max_loss: 0.0", 8, "'routing.cascade.max_loss': at most 0.00% worse"),
    ],
)
def test_the_configuration_is_checked_for_what_was_learned_of_other_models_and_for_promises_nothing_keeps(
    tmp_path: Path, routing: str, line: int, said: str
) -> None:
    turned = "demo.safetensors" in routing
    small, large = ("teacher", "student") if turned else ("student", "teacher")
    file = tmp_path / "headgate.yaml"
    head = f"models:\n- {{id: a, path: demo:{small}, tier: small}}\n- {{id: b, path: demo:{large}, tier: large}}\n"
    file.write_text(f"{head}teams: {{folder: null}}\nrouting:\n  {routing}\n")
    done = CliRunner().invoke(main, ["config", "check", str(file)])
    assert done.exit_code == 1
    assert f"{file}:{line}: {said}" in done.output
    # A model that is not there yet says nothing of it.
    file.write_text(file.read_text().replace("demo:teacher", str(tmp_path / "teacher")))
    assert CliRunner().invoke(main, ["config", "check", str(file)]).exit_code == 0


def test_thresholds_are_for_a_cost_where_one_is_set() -> None:
    fitted = FittedQuality.load(FITTED / "demo.safetensors")
    calibration = fitted.estimators["embedding"].calibration
    assert calibration is not None
    most = 500 * (calibration.seconds[0] + calibration.seconds[-1])
    found = learned(Settings(models=DEMO, routing={"max_device_s_per_1000": most, "max_loss": 0}), None)
    assert found is not None
    assert found.thresholds == {"embedding": fitted.threshold("embedding", seconds=most / 1000)}
    assert 0 < found.thresholds["embedding"] < 1


def test_a_cascade_that_is_to_keep_a_loss_gets_its_least_probability_from_the_file() -> None:
    fitted = FittedQuality.load(FITTED / "demo.safetensors")
    cascade = {"enabled": True, "max_loss": 0.1}
    found = learned(Settings(models=DEMO, routing={"cascade": cascade}), None)
    assert found is not None
    assert found.cascade(0.1, 0.1) == fitted.cascade(0.1, loss=0.1)
    assert found.cascade(0.1, 0.0) is None
    with pytest.raises(QualityError, match=r"routing\.cascade\.max_loss is 0\.0: at most 0\.00% worse"):
        learned(Settings(models=DEMO, routing={"cascade": {**cascade, "max_loss": 0}}), None)
    for nothing in ({"models": DEMO[:1]}, {"models": DEMO, "routing": {"quality": None}}):
        settings = Settings(**{**nothing, "routing": {**nothing.get("routing", {}), "cascade": cascade}})
        with pytest.raises(QualityError, match=r"routing\.cascade\.max_loss is 0\.1: nothing was calibrated"):
            learned(settings, None)
    for other, said in (({"quantile": 0.2}, "quantile is one of 0, 0.05"), ({"hold_tokens": 8}, "hold_tokens is 32")):
        with pytest.raises(ValueError, match=said):
            Settings(models=DEMO, routing={"cascade": {**cascade, **other}})


@pytest.mark.parametrize(("logprob", "model"), [(-0.35, "small-1"), (-0.37, "large-1")])
async def test_answers_are_checked_against_the_calibrated_probability(logprob: float, model: str) -> None:
    says = Chunk(0, "a", (TextLogprob("a", (97,), logprob),), finish_reason="stop", token_ids=(1,))
    fakes = [FakeDestination("small-1", pieces=(says,)), FakeDestination("large-1")]
    models = [{"id": fake.id, "path": "x", "tier": fake.id.split("-")[0]} for fake in fakes]
    settings = Settings(models=models, routing={"cascade": {"enabled": True, "max_loss": 0.1}})
    site = Site(
        *fakes,
        settings=settings,
        quality=Doubtful(),
        cascades=lambda quantile, loss: {(0.1, 0.1): 0.7}.get((quantile, loss)),
    )
    async with site.road.answer(replace(ASK, model="auto"), RED, RequestRecord("id", "e")) as answer:
        opened = answer.opened
    assert (opened.model, opened.reason) == (model, f"cascade:{'kept' if model == 'small-1' else 'escalated'}")


class Doubtful:
    """Would not let the small model answer."""

    wants_state = False

    def estimate(self, _features: RouteFeatures, _task: str) -> Quality:
        return Quality(0.2, 0.9, "embedding")


def test_a_promise_that_nothing_keeps_is_refused_with_the_best_that_can_be_kept() -> None:
    with pytest.raises(QualityError, match=r"routing\.max_loss is 0\.0: at most 0\.00% worse .* cannot be shown"):
        learned(Settings(models=DEMO, routing={"max_loss": 0}), None)
    best = FittedQuality.load(FITTED / "demo.safetensors").threshold("embedding", loss=0.1)
    found = learned(Settings(models=DEMO, routing={"max_loss": 0.1}), None)
    assert found is not None
    assert found.thresholds["embedding"] == best
