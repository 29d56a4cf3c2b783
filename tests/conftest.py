"""Random checkpoints made from transformers' own configurations: the oracle and the engine read the same folder."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Before numpy and torch read it, also in the processes that tests start: two of the suite's share the cores, and the
# products are small. What needs threads says how many.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest
import torch
import transformers
from tiny_models import ARCHITECTURES, COMMON, SEEING, MakeCheckpoint, write_tokenizer

# The same examples in every run: a failure is the change's, not the day's. `HYPOTHESIS_PROFILE=explore` looks further.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
# The models here are tiny: a second thread only makes their operators wait for each other.
torch.set_num_threads(1)

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

_LONGEST = (
    *("interpreter", "triton", "cpu_kernels", "server_process"),
    *("plain_install", "bench_gpu_apart", "recipe", "loop"),
)
"""Files that take a quarter of a minute and more: begun last, one process would wait for the other that has them."""


_NEW_OBJECTS = 20_000
"""Objects made and not yet gone, after which the collector looks for garbage; a server has its own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first."""
    places = {f"test_{name}.py": place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


def pytest_collection_finish() -> None:
    """What is imported by now stays: looking through it for garbage again and again took a fifth of many tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 20, 20)


@pytest.fixture(scope="session")
def make_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> MakeCheckpoint:
    """A folder with a random model of a named architecture, made once per set of arguments."""
    made: dict[str, Path] = {}

    def make(architecture: str, *, seed: int = 0, shard: str = "1GB", **overrides: Any) -> Path:
        key = json.dumps([architecture, seed, shard, overrides], sort_keys=True)
        if key not in made:
            torch.manual_seed(seed)
            if architecture in SEEING:
                config_name, whole = SEEING[architecture]
                config = getattr(transformers, config_name)(**{**whole, **overrides})
                model = transformers.AutoModelForImageTextToText.from_config(config)
            else:
                config_name, extra = ARCHITECTURES[architecture]
                config = getattr(transformers, config_name)(**{**COMMON, **extra, **overrides})
                model = transformers.AutoModelForCausalLM.from_config(config)
            for name, parameter in model.named_parameters():
                # Norms and biases start at one and zero; a test of them needs other values.
                if parameter.dim() == 1 or name.endswith("_bias"):
                    torch.nn.init.normal_(parameter, mean=parameter.mean().item(), std=0.1)
            folder = tmp_path_factory.mktemp(architecture)
            model.save_pretrained(folder, max_shard_size=shard)
            made[key] = folder
        return made[key]

    return make


@pytest.fixture(scope="session")
def tiny_checkpoint(make_checkpoint: MakeCheckpoint) -> Path:
    """A random Qwen3 of three layers with a tokenizer and a chat template; greedy by default."""
    folder = make_checkpoint("qwen3")
    write_tokenizer(folder)
    return folder
