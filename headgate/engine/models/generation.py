"""What a checkpoint's authors say in generation_config.json of how it is to be sampled, and of what it leaves alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.engine.errors import CheckpointError
from headgate.engine.models.weights.tensors import read_json

_FILE = "generation_config.json"


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What a request that does not say gets."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    begin_suppress_tokens: tuple[int, ...] = ()
    """What no answer begins with."""


def sampling_defaults(folder: Path, vocab_size: int) -> SamplingDefaults:
    """As the authors recommend, else plain sampling.

    Raises:
        CheckpointError: the file is damaged, says what no request may, or suppresses what is no token of so large a
            vocabulary.
    """
    config = _read(folder)
    stated = config.get("begin_suppress_tokens") or []
    known = isinstance(stated, list) and all(type(token) is int and 0 <= token < vocab_size for token in stated)
    if not known:
        accepted = f"a list of token ids from 0 to {vocab_size - 1} is accepted"
        raise CheckpointError(f"{folder / _FILE}: begin_suppress_tokens is {stated!r}; {accepted}")
    suppressed = tuple(stated)
    if config.get("do_sample") is False:
        return SamplingDefaults(temperature=0.0, begin_suppress_tokens=suppressed)
    temperature = _number(folder, config, "temperature", sys.float_info.max)
    top_k = _number(folder, config, "top_k", 2**31, least=-1.0)  # -1 keeps all in other software
    return SamplingDefaults(
        temperature=1.0 if temperature is None else temperature,  # 0 is greedy
        top_p=_number(folder, config, "top_p", 1.0) or 1.0,
        top_k=max(0, int(top_k or 0)) if config.get("do_sample") else 0,
        begin_suppress_tokens=suppressed,
    )


def _number(folder: Path, config: Mapping[str, Any], key: str, most: float, least: float = 0.0) -> float | None:
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise CheckpointError(f"{folder / _FILE}: {key} is {value!r}; a number from {least:g} to {most:g} is accepted")
    return float(value)


def hand_over(folder: Path) -> str:
    """How an answer begins that leaves the question to a larger model; empty where the model was not taught that.

    A key of ours. Its first token is among the `begin_suppress_tokens`, which other software knows, so that nobody who
    does not ask for it gets such an answer. `CheckpointError` where the file is damaged.
    """
    return str(_read(folder).get("hand_over") or "")


def _read(folder: Path) -> dict[str, Any]:
    path = folder / _FILE
    return read_json(path) if path.exists() else {}
