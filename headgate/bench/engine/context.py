"""`headgate bench context`: decode steps over long contexts, by how keys and values are kept."""

from __future__ import annotations

import statistics
import tempfile
import time
from datetime import date
from pathlib import Path

import click
import torch
from rich.console import Console

from headgate.bench import ceilings as limits
from headgate.bench.checkpoints import SHAPES, write_random
from headgate.bench.options import weights_option
from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.kv.store import KVDtype, KVStore, kv_bytes_per_token, kv_dtype
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.models.loader import load_decoder
from headgate.engine.quant.linear import WeightFormat

_BLOCK = 16
_SEQUENCES = 8
"""Of one step."""
_WARM_UP = 2


@click.command()
@click.option(
    "--model", type=click.Choice(sorted(SHAPES)), default="qwen3-0.6b", show_default=True, help="Whose shape it has."
)
@weights_option("int8")
@click.option("--tokens", type=click.IntRange(min=1), default=2048, show_default=True, help="Context of each sequence.")
@click.option("--rounds", type=click.IntRange(min=1), default=9, show_default=True, help="Steps of each kind.")
def context(model: str, weights: WeightFormat, tokens: int, rounds: int) -> None:
    """Time decode steps of eight long sequences, keys and values in the model's dtype and in int8 by turns."""
    cpu = torch.device("cpu")
    chosen = choose_kernels("auto", cpu)
    with tempfile.TemporaryDirectory() as scratch, torch.inference_mode():
        decoder = load_decoder(write_random(model, Path(scratch)), chosen.kernels, fmt=weights).decoder
        measured = limits.measure(cpu)
        kinds: tuple[KVDtype, ...] = ("auto", "int8")
        stores = {kind: _filled(decoder, kind, tokens) for kind in kinds}
        taken: dict[KVDtype, list[float]] = {kind: [] for kind in kinds}
        for round_number in range(_WARM_UP + rounds):
            for kind, store in stores.items():
                seconds = _step(decoder, store, tokens)
                if round_number >= _WARM_UP:
                    taken[kind].append(seconds)
    console = Console(width=110)
    console.print(f"{model}, weights {weights}: one step of {_SEQUENCES} sequences after {tokens} tokens each")
    for kind in kinds:
        dtype, times = kv_dtype(kind, decoder.dtype), taken[kind]
        kept = _SEQUENCES * tokens * kv_bytes_per_token(decoder.spec, dtype)
        median = statistics.median(times)
        rate = (decoder.weight_bytes + kept) / median
        console.print(
            f"  {str(dtype).removeprefix('torch.'):9} {median * 1e3:7.1f} ms "
            f"({min(times) * 1e3:.1f} to {max(times) * 1e3:.1f}), {_SEQUENCES / median:6.1f} tokens/s "
            f"for {kept / 1e9:.2f} GB of keys and values, {rate / 1e9:.1f} GB/s ({rate / measured.read_bytes_s:.0%})"
        )
    ratios = [a / b for a, b in zip(taken["auto"], taken["int8"], strict=True)]
    console.print(
        f"  int8 is {statistics.median(ratios):.2f} times as fast "
        f"[{min(ratios):.2f}, {max(ratios):.2f}] over neighbouring steps"
    )
    console.print(
        f"{measured.device}, {measured.threads} threads, {measured.read_bytes_s / 1e9:.1f} GB/s read; "
        f"kernels: {chosen.why}; torch {torch.__version__}, {date.today()}",
        soft_wrap=True,
    )


def _filled(decoder: LanguageModel, kind: KVDtype, tokens: int) -> KVStore:
    """A cache whose every page has been written: what is in it does not matter to the time."""
    blocks = _SEQUENCES * -(-tokens // _BLOCK)
    store = KVStore(decoder.spec, blocks, _BLOCK, kv_dtype(kind, decoder.dtype), decoder.device)
    store.use(range(blocks))
    for layer in store.layers:
        for part in (layer.keys, layer.values, layer.key_scales, layer.value_scales):
            if part is not None:
                part.fill_(1)
    return store


def _step(decoder: LanguageModel, store: KVStore, tokens: int) -> float:
    """Seconds of one."""
    blocks = -(-tokens // _BLOCK)
    tables = [list(range(i * blocks, (i + 1) * blocks)) for i in range(_SEQUENCES)]
    slots = torch.tensor([table[(tokens - 1) // _BLOCK] * _BLOCK + (tokens - 1) % _BLOCK for table in tables])
    batch = AttentionBatch([1] * _SEQUENCES, [tokens] * _SEQUENCES, tables, slots, _BLOCK)
    ids, positions = torch.arange(_SEQUENCES), torch.full((_SEQUENCES,), tokens - 1)
    started = time.perf_counter()
    decoder.forward(ids, positions, batch, store.layers, torch.arange(_SEQUENCES))
    return time.perf_counter() - started
