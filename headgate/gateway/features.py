"""What this server uses of the machine and of optional packages, and why not the rest."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass

import torch
from aiohttp import web

from headgate.engine.kernels.choice import choose_kernels
from headgate.gateway import keys
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
    keyring = app[keys.KEYRING]
    state, detail = app[keys.LIFECYCLE].parts["semantic cache"]
    redis, redis_why = app[keys.LIFECYCLE].parts["redis"]
    files, files_why = app[keys.LIFECYCLE].parts[STORAGE_PART]
    device = app[keys.LOADER].device
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    kernels = choose_kernels(settings.engine.kernels, device)
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    absent = "switched off by engine.device" if torch.cuda.is_available() else "torch sees no CUDA device"
    exact = settings.cache.exact
    kept = "in memory" if redis == "off" else "in Redis"
    return [
        Feature("GPU", bool(gpu), gpu or absent),
        Feature("compiler", compiler is not None, compiler or "none found; it is needed at install only"),
        Feature("native kernels", kernels.native, kernels.why),
        Feature("answer cache", exact.enabled, kept if exact.enabled else "cache.exact.enabled is false"),
        Feature("semantic cache", state != "off", f"{detail}{', loading' if state == 'loading' else ''}"),
        Feature("Redis", redis == "ready", redis_why),
        Feature("files, batches", files == "ready", files_why),
        Feature("API keys", not keyring.open, "every request needs one" if not keyring.open else "open to everybody"),
    ]


def curl_line(url: str, app: web.Application) -> str:
    """A command that gets an answer from this server."""
    body = {"model": "auto", "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    key = "" if app[keys.KEYRING].open else " -H 'Authorization: Bearer YOUR_KEY'"
    return f"curl {url}/v1/chat/completions -H 'Content-Type: application/json'{key} -d '{json.dumps(body)}'"
