"""What a generation costs: money for its tokens and for the device's time. Whole numbers, so that sums are exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from headgate.gateway.configuration.models import ModelSection
from headgate.gateway.configuration.routing import ModelPriceSection
from headgate.gateway.settings import EmbeddingsSection
from headgate.gateway.upstream.sections import UpstreamSection

NANO = 1_000_000_000
MICRO = 1_000_000


class Cost(msgspec.Struct, frozen=True):
    """Billionths of a US dollar, and microseconds of the device."""

    nano_usd: int = 0
    device_us: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.nano_usd + other.nano_usd, self.device_us + other.device_us)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.nano_usd - other.nano_usd, self.device_us - other.device_us)

    @property
    def usd(self) -> str:
        """Dollars, to the last digit."""
        if not self.nano_usd:
            return "0"
        sign, whole = "-" if self.nano_usd < 0 else "", abs(self.nano_usd)
        text = f"{sign}{whole // NANO}.{whole % NANO:09d}"
        return text.rstrip("0").rstrip(".")


NOTHING = Cost()


@dataclass(frozen=True, slots=True)
class _Price:
    prompt: float
    completion: float
    cached: float


_FREE = _Price(0.0, 0.0, 0.0)


def _price(section: ModelPriceSection) -> _Price:
    """Billionths of a dollar for a token."""
    prompt, cached = section.usd_per_million_prompt_tokens, section.usd_per_million_cached_tokens
    completion = section.usd_per_million_completion_tokens
    return _Price(prompt * 1e3, completion * 1e3, (prompt if cached is None else cached) * 1e3)


class Prices:
    """Of every model: the configured price of its tokens, and of the device's time."""

    def __init__(
        self,
        models: Sequence[ModelSection | UpstreamSection] = (),
        usd_per_device_hour: float = 0.0,
        embeddings: EmbeddingsSection | None = None,
    ) -> None:
        """Models that are not listed cost the device's time only."""
        self._models: dict[str, _Price] = {m.id: _price(m.price) for m in models}
        if embeddings is not None:
            per_token = embeddings.usd_per_million_tokens * 1e3
            self._models[embeddings.id] = _Price(per_token, per_token, per_token)
        self._nano_per_us = usd_per_device_hour * NANO / 3600 / MICRO

    def put(self, model: ModelSection) -> None:
        """A model that came. One that goes keeps its price, which who still runs there pays."""
        self._models[model.id] = _price(model.price)

    def of(
        self,
        model: str,
        prompt_tokens: int,
        completion_tokens: int,
        device_s: float,
        cached_tokens: int = 0,
        beside_nano_usd: int = 0,
    ) -> Cost:
        """Of a generation. `cached_tokens` are of the prompt's; `beside_nano_usd` is paid whatever its tokens cost."""
        price = self._models.get(model, _FREE)
        device_us = round(device_s * MICRO)
        nano = (prompt_tokens - cached_tokens) * price.prompt + cached_tokens * price.cached
        nano += completion_tokens * price.completion + device_us * self._nano_per_us
        return Cost(round(nano) + beside_nano_usd, device_us)
