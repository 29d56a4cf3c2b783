"""OpenVINO GenAI's continuous batching. Arguments: exported model's folder, format, threads.

Settings: paged attention with split prefill (the library's own scheduler), its default 8-bit KV cache and dynamic
quantization of activations, latency hint, no prefix cache, as many tokens per step as it takes by itself at most.
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai

from headgate.bench.peers.protocol import About, Prompts, Round, Stopwatch, serve

_CACHE_GIB = 4
_STEP_TOKENS = 512
_RUNNING = 64


def main(folder: Path, fmt: str, threads: int) -> None:
    """Load, then answer rounds."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = _CACHE_GIB
    scheduler.max_num_batched_tokens = _STEP_TOKENS
    scheduler.max_num_seqs = _RUNNING
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = False
    properties = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    pipe = openvino_genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", properties)
    about = About(
        f"openvino-genai {importlib.metadata.version('openvino-genai')}",
        f"ContinuousBatchingPipeline, {fmt}, {threads} threads, {_STEP_TOKENS} tokens per step, 8-bit KV cache",
        (folder / "openvino_model.bin").stat().st_size,
        1.0,
        "int8",
    )
    serial = 0

    def run(prompts: Prompts) -> Round:
        nonlocal serial
        handles = []
        watch = Stopwatch([new for _, new in prompts])
        for prompt, new in prompts:
            config = openvino_genai.GenerationConfig()
            config.max_new_tokens = config.min_new_tokens = new
            config.ignore_eos = True
            config.do_sample = False
            serial += 1
            handles.append(pipe.add_request(serial, openvino.Tensor(np.array([prompt], dtype=np.int64)), config))
        while pipe.has_non_finished_requests():
            pipe.step()
            watch.step({number: _new_tokens(handle) for number, handle in enumerate(handles)})
        return watch.round()

    serve(about, run)


def _new_tokens(handle: Any) -> int:
    count = 0
    while handle.can_read():
        count += sum(len(output.generated_ids) for output in handle.read().values())
    return count


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
