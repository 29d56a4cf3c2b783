"""What settings and team files say that cannot all be meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from headgate.gateway.configuration.document import Keys
from headgate.gateway.configuration.routing import PolicySection, RoutingSection
from headgate.gateway.configuration.section import RESERVED_IDS
from headgate.gateway.routing.policies import policy_of
from headgate.gateway.settings import Settings
from headgate.gateway.teams.sections import DefaultsSection, ModelsSection, TeamFile, TeamPolicy
from headgate.gateway.upstream.checks import upstream_problems
from headgate.gateway.wire.decode import nearest
from headgate.routing.tasks import load_tasks

Problem = tuple[Keys, str]
"""The keys that lead to a value, and what is wrong with it."""


def allowed_models(settings: Settings, policy: DefaultsSection) -> frozenset[str] | None:
    """Ids of the models that a policy allows; None: all."""
    models = policy.models
    if models.allow is None and not models.deny:
        return None
    allowed = _ids(settings) if models.allow is None else models.allow
    return frozenset(allowed) - frozenset(models.deny)


def _ids(settings: Settings) -> list[str]:
    """Of everything that can be asked by name."""
    return [*(model.id for model in settings.named), settings.embeddings.id]


def problems(settings: Settings) -> Iterator[Problem]:
    """Of the main file."""
    routing, defaults = settings.routing, settings.defaults
    try:
        load_tasks([Path(file) for file in routing.classes])
    except ValueError as error:
        yield ("routing", "classes"), str(error)
    yield from upstream_problems(settings)
    found = list(_of_models(settings, ("defaults", "models"), defaults.models, defaults.models))
    yield from found
    yield from _of_experiments(settings, ("defaults",), defaults, defaults)
    if not found:
        allowed = allowed_models(settings, defaults)
        yield from _of_policy(settings, ("routing",), routing, (), allowed)
        yield from _of_budgets(settings, ("defaults", "budgets", "on_exceed"), defaults, allowed)


def team_problems(settings: Settings, file: TeamFile, policy: TeamPolicy) -> Iterator[Problem]:
    """Of a team file, whose policy has the defaults filled in. Keys lead to places in that file."""
    found = list(_of_models(settings, ("models",), file.models, policy.models))
    yield from found
    yield from _of_experiments(settings, (), file, policy)
    if found:
        return
    share, most = file.cache.max_error, settings.cache.semantic.max_error
    if share is not None and share > most:
        yield ("cache", "max_error"), f"{share:g} is above cache.semantic.max_error of the main file, {most:g}"
    allowed = allowed_models(settings, policy)
    yield from _of_policy(settings, ("routing",), file.routing, (file.routing,), allowed)
    yield from _of_budgets(settings, ("budgets", "on_exceed"), policy, allowed)
    for index, key in enumerate(file.keys):
        place: Keys = ("keys", index)
        unknown = list(_unknown(_ids(settings), (*place, "models"), key.models))
        yield from unknown
        if unknown:
            continue
        own = allowed if key.models is None else frozenset(key.models)
        for at, model in enumerate(key.models or ()):
            if allowed is not None and model not in allowed:
                why = f"'{model}' is not among the models of the key's team, which are {_list(allowed)}"
                yield (*place, "models", at), why
        if key.models is not None or key.routing != PolicySection():
            yield from _of_policy(settings, (*place, "routing"), key.routing, (file.routing, key.routing), own)
        if key.models is not None:
            yield from _of_budgets(settings, (*place, "models"), policy, own)


def _of_models(settings: Settings, place: Keys, own: ModelsSection, merged: ModelsSection) -> Iterator[Problem]:
    """Of a block `models`, as it stands in its file and with the defaults filled in."""
    ids = _ids(settings)
    names = [*ids, *RESERVED_IDS]
    yield from _unknown(ids, (*place, "allow"), own.allow)
    yield from _unknown(ids, (*place, "deny"), own.deny)
    for name, target in own.aliases.items():
        if name in names:
            yield (*place, "aliases", name), f"'{name}' already names a model; give the alias another name"
        if target not in names:
            why = f"there is no model '{target}'.{nearest(target, names)} An alias means one of {_list(names)}"
            yield (*place, "aliases", name), why
    if own.default is not None and own.default not in (*names, *merged.aliases):
        known = [*names, *merged.aliases]
        yield (*place, "default"), f"there is no model '{own.default}'.{nearest(own.default, known)}"
    allowed = set(ids if merged.allow is None else merged.allow) - set(merged.deny)
    if not allowed & {model.id for model in settings.named}:
        yield (*place, "deny" if own.deny else "allow"), "no model is left that may be asked"
    for name, target in own.aliases.items():
        if target in ids and target not in allowed:
            yield (*place, "aliases", name), f"'{target}' may not be asked; the models allowed are {_list(allowed)}"


def _of_experiments(
    settings: Settings, place: Keys, own: DefaultsSection, merged: DefaultsSection
) -> Iterator[Problem]:
    allowed = allowed_models(settings, merged)
    chats = [model.id for model in settings.served if allowed is None or model.id in allowed]
    for kind, named in (("weights", own.experiments.weights), ("shadow", own.experiments.shadow)):
        for name in named:
            if name not in chats:
                why = f"'{name}' is no model that may be asked.{nearest(name, chats)} Those are {_list(chats)}"
                yield (*place, "experiments", kind, name), why


def _unknown(ids: list[str], place: Keys, given: tuple[str, ...] | None) -> Iterator[Problem]:
    for at, name in enumerate(given or ()):
        if name not in ids:
            yield (*place, at), f"there is no model '{name}'.{nearest(name, ids)} The models are {_list(ids)}"


def _of_policy(
    settings: Settings,
    place: Keys,
    own: RoutingSection | PolicySection,
    layers: tuple[PolicySection, ...],
    models: frozenset[str] | None,
) -> Iterator[Problem]:
    """Of a routing policy over those below it, for whoever may ask these models."""
    ids = [model.id for model in settings.served]
    unknown = list(_unknown(ids, (*place, "chain"), own.chain))
    yield from unknown
    if unknown:
        return
    allowed = {name for name in ids if models is None or name in models}
    for at, name in enumerate(own.chain or ()):
        if name not in allowed:
            yield (*place, "chain", at), f"the chain names '{name}', but the models allowed are {_list(allowed)}"
    tiers = {model.tier for model in settings.served if model.id in allowed}
    shares = [layer.escalations for layer in layers if layer.escalations is not None]
    share = shares[-1] if shares else settings.routing.escalations
    if share < 1 and "small" not in tiers:
        yield (*place, "escalations"), f"escalations are limited to {share:g}, but no model allowed has the tier small"
    if policy_of(settings.routing, *layers, models=models).cascade is not None:
        if missing := {"small", "large"} - tiers:
            why = f"a cascade needs both tiers, but no model allowed has the tier {_list(missing)}"
            yield (*place, "cascade"), why
        elif share == 0:
            yield (*place, "cascade"), "a cascade escalates what is not sure, but escalations are limited to 0"


def _of_budgets(
    settings: Settings, place: Keys, policy: DefaultsSection, models: frozenset[str] | None
) -> Iterator[Problem]:
    """Of what becomes of whoever may ask these models once a budget is spent: another tier would go on spending."""
    budgets = policy.budgets
    limits = (budgets.daily_usd, budgets.monthly_usd, budgets.daily_device_s, budgets.monthly_device_s)
    tiers = {model.tier for model in settings.served if models is None or model.id in models}
    if budgets.on_exceed == "downgrade" and limits != (None,) * 4 and tiers and "small" not in tiers:
        why = "a spent budget is to downgrade to the tier small, but no model allowed has it; block and queue need none"
        yield place, why


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
