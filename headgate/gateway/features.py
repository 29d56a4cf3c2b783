"""What this server uses of the machine and of optional packages, and why not the rest."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass

import torch
from aiohttp import web

from headgate.gateway import keys


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
    device = app[keys.LOADER].device
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    absent = "switched off by engine.device" if torch.cuda.is_available() else "torch sees no CUDA device"
    exact = settings.cache.exact
    return [
        Feature("GPU", bool(gpu), gpu or absent),
        Feature("compiler", False, f"{compiler or 'none found'}; kernels are plain torch and need none"),
        Feature("answer cache", exact.enabled, "in memory" if exact.enabled else "cache.exact.enabled is false"),
        Feature("semantic cache", state != "off", f"{detail}{', loading' if state == 'loading' else ''}"),
        Feature("Redis", False, "answers are kept in this process"),
        Feature("API keys", not keyring.open, "every request needs one" if not keyring.open else "open to everybody"),
    ]


def curl_line(url: str, app: web.Application) -> str:
    """A command that gets an answer from this server."""
    body = {"model": "auto", "messages": [{"role": "user", "content": "What is 17 plus 25?"}]}
    key = "" if app[keys.KEYRING].open else " -H 'Authorization: Bearer YOUR_KEY'"
    return f"curl {url}/v1/chat/completions -H 'Content-Type: application/json'{key} -d '{json.dumps(body)}'"
