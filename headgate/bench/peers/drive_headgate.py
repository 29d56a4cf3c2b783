"""Our engine as one of the measured. Arguments: checkpoint folder, weight format, threads."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import cast

import torch

from headgate import __version__
from headgate.bench.engine.speed import EngineBench, started
from headgate.bench.peers.protocol import About, Prompts, Round, serve
from headgate.engine.models.architectures import read_spec
from headgate.engine.quant.linear import WeightFormat
from headgate.engine.settings import EngineSettings, ModelSpec


def main(folder: Path, weights: str, threads: int) -> None:
    """Load, then answer rounds."""
    settings = EngineSettings(device="cpu", threads=threads, prefix_cache=False, prompt_lookup=False)
    with started(settings, ModelSpec("bench", folder, weights=cast(WeightFormat, weights))) as engine:
        info = engine.models["bench"].info
        spec = read_spec(json.loads((folder / "config.json").read_text()))
        about = About(
            f"headgate {__version__}, torch {torch.__version__}",
            f"weights {weights}, {threads} threads, no prefix cache",
            info.weight_bytes,
            info.kv_bytes_per_token / spec.kv_elements_per_token,
            "bfloat16" if weights == "native" else "int8",
        )
        bench = EngineBench(engine, "bench")

        def run(prompts: Prompts) -> Round:
            timing = bench.time([(tuple(prompt), new) for prompt, new in prompts])
            return Round(timing.total_s, timing.decode_s, timing.decode_tokens)

        serve(about, run)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
