import pytest
import torch

from headgate.training import forward
from headgate.training.forward import fastest, products


@pytest.fixture(autouse=True)
def _asked_anew():
    fastest.cache_clear()
    yield
    fastest.cache_clear()


def test_a_gpu_multiplies_in_bf16() -> None:
    assert fastest(torch.device("cuda")) is torch.bfloat16


@pytest.mark.parametrize(
    ("bf16", "fp32", "wanted"), [(1.0, 2.0, torch.bfloat16), (1.0, 0.9, torch.bfloat16), (2.0, 1.0, torch.float32)]
)
def test_a_cpu_multiplies_in_fp32_where_a_product_of_it_took_much_less(
    monkeypatch: pytest.MonkeyPatch, bf16: float, fp32: float, wanted: torch.dtype
) -> None:
    cpu = torch.device("cpu")
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(forward, "_product_seconds", {torch.bfloat16: bf16, torch.float32: fp32}.__getitem__)
    assert fastest(cpu) is wanted
    with products(cpu):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is wanted


def test_a_cpu_without_instructions_for_bf16_is_not_asked_for_a_product_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    monkeypatch.setattr(forward, "_product_seconds", {}.__getitem__)
    assert fastest(torch.device("cpu")) is torch.float32
