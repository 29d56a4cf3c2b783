"""Which device an engine computes on, and whether its models fit there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headgate.engine.device import open_device
from headgate.engine.engine import Engine
from headgate.engine.errors import ModelsTooLarge
from headgate.engine.kv.store import KVStore
from headgate.engine.settings import EngineSettings, ModelSpec


@pytest.mark.parametrize(
    ("name", "seen", "why"),
    [
        ("gpu", 2, "must be auto, cpu, cuda or cuda:N, got 'gpu'"),
        ("mps", 2, "must be auto, cpu, cuda or cuda:N, got 'mps'"),
        ("cuda", 0, "torch sees no CUDA device here; use auto or cpu"),
        ("cuda:2", 2, "is 'cuda:2', but torch sees 2 CUDA devices here; use cuda:0 to cuda:1"),
    ],
)
def test_a_device_that_is_not_there_is_refused(name: str, seen: int, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: seen > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: seen)
    with pytest.raises(ValueError, match=why):
        open_device(name)


@pytest.mark.parametrize(("name", "seen", "kind"), [("auto", 0, "cpu"), ("auto", 1, "cuda"), ("cuda:1", 2, "cuda")])
def test_a_device_that_is_there_is_taken(name: str, seen: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: seen > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: seen)
    assert open_device(name).type == kind


def test_models_that_do_not_fit_are_told_in_a_sentence(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(EngineSettings(device="cpu", kernels="reference", kv_bytes=1 << 20))

    def raises(error: Exception) -> None:
        def allocate(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(KVStore, "__init__", allocate)

    raises(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 94.00 GiB"))
    with pytest.raises(
        ModelsTooLarge, match=r"do not fit the memory of cpu: CUDA out of memory.*94.00 GiB; fewer models"
    ):
        engine.load(ModelSpec("m", tiny_checkpoint))
    raises(RuntimeError("CUDA error: an illegal memory access"))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        engine.load(ModelSpec("m", tiny_checkpoint))
