"""Explaining where a request would go: as a value for the wire, and without a server, on what is configured."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from headgate.cache.embedding.embedder import SentenceEmbedder
from headgate.engine.front.local import LocalModel
from headgate.engine.front.model_info import ModelInfo
from headgate.engine.loop import StepLoop
from headgate.engine.models.generation import SamplingDefaults
from headgate.engine.models.loading import read_facts
from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.folder import read_object, text_revision
from headgate.engine.text.picture_reader import PictureReader
from headgate.engine.text.picture_tokens import KINDS
from headgate.engine.text.reasoning import thinks
from headgate.engine.text.tokenizer import Tokenizer
from headgate.engine.text.tool_calls import tool_format
from headgate.gateway.configuration.models import ModelSection
from headgate.gateway.local.checkpoints import adapter_path, model_path
from headgate.gateway.local.destination import LocalDestination
from headgate.gateway.local.pictures import PictureDecoder, PictureLimits
from headgate.gateway.local.start_rates import start_rates
from headgate.gateway.road.destinations import Destination, Live, Prepared
from headgate.gateway.road.plan import Plan
from headgate.gateway.road.request import ChatRequest
from headgate.gateway.routing.quality import learned
from headgate.gateway.routing.routes import Routes
from headgate.gateway.settings import EngineSection, Settings
from headgate.gateway.teams.keys import Principal
from headgate.gateway.upstream.destination import UpstreamDestination
from headgate.gateway.upstream.failures import cause_of
from headgate.gateway.wire.errors import ApiError
from headgate.gateway.wire.route_admin import PriceBody, QualityBody, RouteReport, WeighedBody
from headgate.routing.classes import TaskClassifier
from headgate.routing.explain import counterfactuals, lines, rule
from headgate.routing.policy import Decision, Weighed
from headgate.routing.price import Load
from headgate.routing.tasks import load_tasks
from headgate.routing.types import Quality

_WIDTHS = {"native": 2.0, "int8": 1.0, "int4": 0.5}
"""Bytes of a weight."""


class ConfiguredModel(LocalDestination):
    """A model as it is configured, not loaded: it reads texts, and stands idle with nothing in its cache."""

    def live(self) -> Live:
        """Idle, at the rates that its size suggests."""
        info = self._info
        return Live(Load(max_running=info.max_running, max_step_tokens=info.max_step_tokens), start_rates(info), "")

    async def probe(self, prepared: Prepared, principal: Principal) -> None:
        """None: it computes nothing."""

    def resident(self, prepared: Prepared, principal: Principal) -> int:  # noqa: ARG002  as of any destination
        """Nothing is."""
        return 0


def _eyes(folder: Path, tokenizer: Tokenizer) -> PictureReader | None:
    """What reads pictures for a model that sees, as far as its files tell."""
    if read_object(folder / "config.json", required=True).get("model_type") not in KINDS:
        return None
    try:
        return PictureReader.load(folder, tokenizer)
    except (ImportError, OSError, ValueError):
        return None


def configured_model(
    section: ModelSection, engine: EngineSection, pictures: PictureDecoder | None = None
) -> ConfiguredModel:
    """A configured model by the files of its checkpoint, none of whose weights are read, and of its adapter.

    Raises:
        CheckpointError, TokenizerError: a file is missing or damaged; the message names it.
    """
    folder = model_path(section)
    facts = read_facts(folder, adapter_path(section))
    read_bytes = facts.active_parameters * _WIDTHS[section.weights]
    template, tokenizer = ChatTemplate.load(folder), Tokenizer.load(folder)
    thinking, eyes = thinks(template, tokenizer), _eyes(folder, tokenizer)
    info = ModelInfo(
        name=section.id,
        path=str(folder),
        architecture=facts.architecture,
        context_length=min(section.context_length or facts.context_length, facts.context_length),
        vocab_size=facts.vocab_size,
        parameters=facts.parameters,
        active_parameters=facts.active_parameters,
        weight_bytes=int(read_bytes),
        expert_bytes=0.0,
        experts=0,
        experts_per_token=0,
        kv_bytes_per_token=0,
        dtype=section.dtype,
        weights=section.weights,
        device=engine.device,
        revision=facts.revision,
        defaults=SamplingDefaults(),
        text_revision=text_revision(folder),
        max_running=engine.max_running,
        max_step_tokens=engine.max_step_tokens,
        tool_calls=tool_format(template, section.tool_calls, harmony=thinking == "harmony"),
        thinks=thinking,
        sees=eyes is not None,
    )
    model = LocalModel(info, tokenizer, template, StepLoop(), pictures=eyes)
    return ConfiguredModel(model, lacks=section.lacks, pictures=pictures)


async def configured_routes(settings: Settings, embedder_folder: Path | None) -> Routes:
    """Routes between the configured models, with task classes told by meaning where there is an embedder.

    Raises:
        CheckpointError, TokenizerError: a model's files are missing or damaged.
        QualityError: what was learned of the models cannot be used as the settings want it.
    """
    pictures = PictureDecoder(PictureLimits.of(settings.server))
    destinations: list[Destination] = [configured_model(m, settings.engine, pictures) for m in settings.local]
    destinations += [UpstreamDestination(u) for u in settings.upstreams if "chat" in u.serves]
    tiers = {m.id: m.tier for m in settings.served if m.tier is not None}
    found = learned(settings, embedder_folder)
    routes = Routes(
        destinations,
        tiers,
        TaskClassifier(load_tasks([Path(file) for file in settings.routing.classes])),
        settings,
        quality=None if found is None else found.estimates,
        thresholds=None if found is None else found.thresholds,
        cascades=None if found is None else found.cascade,
        estimated=None if found is None else found.models,
    )
    if embedder_folder is not None:
        embedder = SentenceEmbedder(embedder_folder)
        await embedder.load()
        await routes.understand(embedder)
    return routes


async def explained(routes: Routes, request: ChatRequest, principal: Principal, config: str) -> RouteReport:
    """Where a request would go, let in as it is. ApiError where it would be refused, as it would be."""
    routes.candidates(request.model, principal)
    plan = await routes.plan(request, None, principal)
    if request.arm and (cause := await _keeps(routes, request)):
        with suppress(ApiError):  # where there is nobody else the arm is asked all the same
            request, other = await routes.instead(request, None, principal)
            plan = other.because(f"fallback:{cause}")
    model = plan.route.model
    if model in plan.refusals:
        raise plan.refusals[model]
    if model not in plan.prepared:  # one that is named is not weighed
        await routes.destination(model).prepare(request)
    return route_report(plan, config)


async def _keeps(routes: Routes, request: ChatRequest) -> str:
    """What keeps an experiment's model from answering, as far as that is known before it is asked."""
    if not routes.up(request.model):
        return "down"
    model = routes.destination(request.model)
    if (stands := model.live()) is not None and not stands.ready:
        return "asleep"
    try:
        await model.prepare(request)
    except ApiError as error:
        return cause_of(error)
    return ""


def route_report(plan: Plan, config: str) -> RouteReport:
    """The wire form of a plan."""
    return decision_report(plan.decision, plan.features, config, plan.choose_s)


def decision_report(decision: Decision, features: str, config: str, choose_s: float) -> RouteReport:
    """The wire form of a decision, with the hash of what was decided over."""
    route, judgement = decision.route, decision.judgement
    quality = judgement.quality
    return RouteReport(
        decision.requested,
        route.model,
        route.reason,
        rule(decision),
        list(route.fallbacks),
        judgement.task,
        judgement.confidence,
        None if quality is None else _quality(quality),
        None if decision.bar is None else decision.bar.needed,
        decision.incumbent,
        decision.cascade is not None,
        [_weighed(entry) for entry in decision.weighed],
        counterfactuals(decision),
        features,
        config,
        1e3 * choose_s,
        lines(decision),
    )


def _quality(quality: Quality) -> QualityBody:
    return QualityBody(
        quality.small, quality.large, quality.enough, quality.source, list(quality.readings), quality.kept
    )


def _weighed(entry: Weighed) -> WeighedBody:
    destination, price = entry.destination, entry.destination.price
    body = None
    if price is not None:
        body = PriceBody(
            price.queue_s,
            price.prefill_s,
            price.decode_s,
            price.device_s,
            price.others_s,
            price.usd,
            price.score,
            price.computed_tokens,
            price.output_tokens,
        )
    return WeighedBody(destination.name, destination.tier, entry.at_floor, entry.excluded, body)
