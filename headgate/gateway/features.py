"""What this server uses of the machine and of optional packages, and why not the rest."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass

import torch
from aiohttp import web

from headgate.engine.kernels.choice import choose_kernels
from headgate.gateway import keys
from headgate.gateway.settings import Settings
from headgate.gateway.storage.folder import PART as STORAGE_PART


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that is used when it is there."""

    name: str
    on: bool
    why: str


def features(app: web.Application) -> list[Feature]:
    """The features of a server, for its operator."""
    settings = app[keys.SETTINGS]
    teams = app[keys.TEAMS]
    state, detail = app[keys.LIFECYCLE].parts["semantic cache"]
    redis, redis_why = app[keys.LIFECYCLE].parts["redis"]
    files, files_why = app[keys.LIFECYCLE].parts[STORAGE_PART]
    device = app[keys.LOADER].device
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    kernels = choose_kernels(settings.engine.kernels, device)
    # Before models are loaded nobody knows more; the log tells what came of it.
    unsure = f", if they are right when tried on {kernels.untried}" if kernels.untried else ""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    absent = "switched off by engine.device" if torch.cuda.is_available() else "torch sees no CUDA device"
    exact = settings.cache.exact
    kept = "in memory" if redis == "off" else "in Redis"
    return [
        Feature("GPU", bool(gpu), gpu or absent),
        Feature("compiler", compiler is not None, compiler or "none found; it is needed at install only"),
        Feature("native kernels", kernels.native, f"{kernels.why}{unsure}"),
        Feature("answer cache", exact.enabled, kept if exact.enabled else "cache.exact.enabled is false"),
        Feature("semantic cache", state != "off", f"{detail}{', loading' if state == 'loading' else ''}"),
        Feature("Redis", redis == "ready", redis_why),
        Feature("files, batches", files == "ready", files_why),
        Feature("API keys", not teams.open, _keys_why(settings, app)),
    ]


def _keys_why(settings: Settings, app: web.Application) -> str:
    roster = app[keys.TEAMS].roster
    if not roster.open:
        count = sum(len(team.keys) for team in roster.teams.values())
        return f"every request needs one; {count} of {len(roster.teams)} teams in {settings.teams.folder}"
    where = "teams.folder is null" if settings.teams.folder is None else f"no team files in {settings.teams.folder}"
    return f"open to everybody who reaches {settings.server.host}: {where}"


def curl_line(url: str, app: web.Application) -> str:
    """A command that gets an answer from this server."""
    key = "" if app[keys.TEAMS].open else " -H 'Authorization: Bearer YOUR_KEY'"
    if not app[keys.SETTINGS].served:
        return f"curl {url}/v1/models{key}"
    body = {"model": "auto", "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    return f"curl {url}/v1/chat/completions -H 'Content-Type: application/json'{key} -d '{json.dumps(body)}'"
