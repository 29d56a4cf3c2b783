"""What was learned of how well the configured models answer, and the thresholds that keep what the settings promise."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from headgate.cache.embedding.sentence_model import identity
from headgate.engine.errors import EngineError
from headgate.gateway.configuration.document import Keys
from headgate.gateway.configuration.models import ModelSection
from headgate.gateway.configuration.routing import RoutingSection
from headgate.gateway.local.checkpoints import configured_hand_over, model_identity
from headgate.gateway.parts import StartError, embedder_folder
from headgate.gateway.settings import Settings
from headgate.routing.calibration import Infeasible
from headgate.routing.quality import FITTED, FittedQuality, Source, StaleQuality

logger = logging.getLogger(__name__)

BUNDLED = "bundled"
_DEMO = frozenset({"demo:student", "demo:teacher"})
_QUALITY, _CASCADE = "routing.quality", "routing.cascade.max_loss"


class QualityError(ValueError):
    """What the operator demands of the estimates cannot be had; the message names the setting."""

    def __init__(self, setting: str, value: object, why: str) -> None:
        """`setting`: its dotted key."""
        super().__init__(f"{setting} is {value}: {why}")
        self.setting = setting
        self.why = why


@dataclass(frozen=True, slots=True)
class Learned:
    """Estimates that fit models which serve.

    `models` are the ids of those that the estimates are of: all copies of the two checkpoints, small and large.
    `thresholds` are on the small tier's estimate, by the source of an estimate; 1 where no use of the small model is
    known to keep the promise by it.
    """

    estimates: FittedQuality
    thresholds: Mapping[str, float]
    models: frozenset[str]

    def cascade(self, quantile: float, loss: float) -> float | None:
        """The least probability of the token at a quantile with which a small answer stands; None where infeasible."""
        try:
            return self.estimates.cascade(quantile, loss=loss)
        except Infeasible as error:
            logger.warning("a team's routing.cascade.max_loss: %s", error)
            return None


def learned(settings: Settings, embedder: Path | None) -> Learned | None:
    """The estimates of `routing.quality`; None where there are none for these models, which the log explains.

    Args:
        settings: name the file, the models and the promises.
        embedder: folder of the embedding model, None without one.

    Raises:
        QualityError: a file that the settings name cannot be used, or no use of the small model keeps their promise.
    """
    routing = settings.routing
    promised = routing.cascade.max_loss if routing.cascade.enabled else None
    found = _fitting(settings, embedder)
    if found is None:
        if promised is not None:
            raise QualityError(_CASCADE, promised, "nothing was calibrated for these models")
        return None
    estimates, models = found
    wanted = _sources(routing)
    if not wanted & set(estimates.estimators):
        there, used = (", ".join(sorted(names)) or "none" for names in (estimates.estimators, wanted))
        raise QualityError(_QUALITY, f"'{routing.quality}'", f"it estimates from {there}; {used} is used here")
    thresholds = _thresholds(estimates, wanted & set(estimates.estimators), routing)
    if promised is not None:
        try:
            estimates.cascade(routing.cascade.quantile, loss=promised)
        except Infeasible as error:
            raise QualityError(_CASCADE, promised, str(error)) from None
    return Learned(estimates, thresholds, models)


def _thresholds(estimates: FittedQuality, sources: Set[Source], routing: RoutingSection) -> dict[str, float]:
    """On the estimates from each source, for what the settings promise."""
    found: dict[str, float] = {}
    most = routing.max_device_s_per_1000
    if most is not None:
        try:
            return {source: estimates.threshold(source, seconds=most / 1000) for source in sources}
        except Infeasible as error:
            raise QualityError("routing.max_device_s_per_1000", most, str(error)) from None
    why = ""
    for source in sources:
        try:
            found[source] = estimates.threshold(source, loss=routing.max_loss)
        except Infeasible as error:
            why = str(error)
            found[source] = 1.0
    if all(threshold == 1.0 for threshold in found.values()):
        raise QualityError("routing.max_loss", routing.max_loss, why)
    return found


def quality_problems(settings: Settings) -> Iterator[tuple[Keys, str]]:
    """What a server would find when it has its models: the key of the setting, and what is wrong with it.

    Nothing is said where a model is not on this machine yet, or the embedding model is not.
    """
    if not all(map(_there, settings.local)):
        return
    try:
        learned(settings, embedder_folder(settings)[0])
    except QualityError as error:
        yield tuple(error.setting.split(".")), error.why
    except (StartError, ValueError, OSError, EngineError):
        return


def _there(model: ModelSection) -> bool:
    adapter = model.adapter
    return (model.path in _DEMO or Path(model.path).is_dir()) and (adapter is None or Path(adapter).is_dir())


def _fitting(settings: Settings, embedder: Path | None) -> tuple[FittedQuality, frozenset[str]] | None:
    """The estimates and the ids of the models that they are of."""
    quality = settings.routing.quality
    # Of other models nothing is bundled.
    known = [m for m in settings.local if quality != BUNDLED or (m.path in _DEMO and m.adapter is None)]
    if quality is None or {"small", "large"} - {m.tier for m in known}:
        return None
    small, large = ({m.id: model_identity(m) for m in known if m.tier == tier} for tier in ("small", "large"))
    phrases = {small[m.id]: configured_hand_over(m) for m in known if m.tier == "small"}
    try:
        estimates = FittedQuality.load(FITTED / "demo.safetensors" if quality == BUNDLED else Path(quality))
        served = _nearest(small, estimates.of_small)
        estimates.check(
            small=served,
            large=_nearest(large, estimates.of_large),
            hand_over=phrases[served],
            embedder="" if embedder is None else identity(str(embedder)),
        )
    except ValueError as error:
        if quality == BUNDLED and isinstance(error, StaleQuality):
            logger.info("task classes decide between the models: %s", error)
            return None
        raise QualityError(_QUALITY, f"'{quality}'", str(error)) from None
    models = {name for name, own in small.items() if own == estimates.of_small}
    return estimates, frozenset(models | {name for name, own in large.items() if own == estimates.of_large})


def _nearest(identities: Mapping[str, str], wanted: str) -> str:
    """The identity that is wanted where one of a tier's models has it, else another's."""
    return wanted if wanted in identities.values() else next(iter(identities.values()))


def _sources(routing: RoutingSection) -> set[Source]:
    """What estimates are made from: where there is no state, from the embedding."""
    if routing.judge_cores:
        return {"cores"}
    return {"probe", "embedding"} if routing.probe else {"embedding"}
