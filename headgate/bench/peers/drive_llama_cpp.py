"""llama.cpp by its own tools. Arguments: GGUF file, format, threads, folder of the built tools.

`llama-batched-bench` times prompts and batches of equal lengths (without sampling, each call with its own warm-up),
`llama-server` everything else: its slots are the only continuous batching there is. A batch's first token comes from
its prompts, so that `new - 1` more are decoded.
"""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from headgate.bench.peers.protocol import About, Prompts, Refused, Round, serve

_SLOTS = 32
_SLOT_TOKENS = 768
_START_S = 60.0


class LlamaCpp:
    """The tools on one file."""

    def __init__(self, model: Path, threads: int, tools: Path) -> None:
        self._model = model
        self._threads = threads
        self._tools = tools
        self._server: tuple[subprocess.Popen[bytes], int] | None = None

    def run(self, prompts: Prompts) -> Round:
        """One round by the tool for its shape."""
        lengths = {(len(prompt), new) for prompt, new in prompts}
        if len(lengths) > 1:
            return self._serve(prompts)
        ((prompt, new),) = lengths
        return self._prompt(prompt) if new == 1 and len(prompts) == 1 else self._batch(len(prompts), prompt, new)

    def close(self) -> None:
        """End the server, if one was started."""
        if self._server is not None:
            self._server[0].terminate()
            self._server[0].wait()

    def _prompt(self, length: int) -> Round:
        return Round(self._times(1, length, 1)["t_pp"])

    def _batch(self, batch: int, prompt: int, new: int) -> Round:
        times = self._times(batch, prompt, new - 1)
        return Round(times["t_pp"] + times["t_tg"], times["t_tg"], batch * (new - 1))

    def _times(self, batch: int, prompt: int, decoded: int) -> dict[str, float]:
        sizes = ("-npl", batch, "-npp", prompt, "-ntg", decoded, "-c", batch * (prompt + decoded + 1))
        threads = ("-t", self._threads, "-tb", self._threads)
        text = self._output("llama-batched-bench", *sizes, *threads, "--output-format", "jsonl")
        line = next(line for line in text.splitlines() if line.startswith("{"))
        result: dict[str, float] = json.loads(line)
        return result

    def _serve(self, prompts: Prompts) -> Round:
        if self._server is None:
            self._server = self._start()
        port = self._server[1]
        with ThreadPoolExecutor(len(prompts)) as clients:
            started = time.perf_counter()
            counts = list(clients.map(partial(_complete, port), *zip(*prompts, strict=True)))
            seconds = time.perf_counter() - started
        if counts != [new for _, new in prompts]:
            raise ValueError(f"llama-server gave {counts} tokens for {[new for _, new in prompts]}")
        return Round(seconds)

    def _start(self) -> tuple[subprocess.Popen[bytes], int]:
        if not (self._tools / "llama-server").exists():
            raise Refused("llama-server, its only continuous batching, was not built")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        command = [self._tools / "llama-server", "-m", self._model, "--host", "127.0.0.1", "--port", port]
        command += ["-t", self._threads, "-tb", self._threads, "-np", _SLOTS, "-c", _SLOTS * _SLOT_TOKENS]
        command += ["--threads-http", 2, "--cache-ram", 0, "--no-webui", "--log-disable"]
        process = subprocess.Popen([str(part) for part in command], stdout=sys.stderr, stderr=sys.stderr)
        deadline = time.monotonic() + _START_S
        while not _healthy(port):
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise Refused("llama-server did not start; its words are in the log")
            time.sleep(0.1)
        return process, port

    def _output(self, tool: str, *arguments: object) -> str:
        command = [str(self._tools / tool), "-m", str(self._model), *map(str, arguments)]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=sys.stderr, check=True, text=True).stdout


def _complete(port: int, prompt: list[int], new: int) -> int:
    body = {"prompt": prompt, "n_predict": new, "ignore_eos": True, "temperature": 0, "cache_prompt": False}
    body |= {"samplers": ["top_k"], "top_k": 1}
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
    reply = json.loads(connection.getresponse().read())
    connection.close()
    return int(reply["tokens_predicted"])


def _healthy(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


def main(model: Path, fmt: str, threads: int, tools: Path) -> None:
    """Answer rounds."""
    version = subprocess.run([tools / "llama-batched-bench", "--version"], capture_output=True, text=True, check=False)
    words = (version.stdout + version.stderr).strip().splitlines()
    native = "GGML_NATIVE:BOOL=ON" in (tools.parent / "CMakeCache.txt").read_text()
    build = (
        "native build (AMX where there is some)" if native else "built for named instruction sets, AMX not among them"
    )
    about = About(
        f"llama.cpp {words[0] if words else 'of unknown version'}",
        f"{fmt}, {threads} threads, weights repacked at load, {build}; 16-bit KV cache; mixed: {_SLOTS} slots",
        model.stat().st_size,
        2.0,
        "bfloat16" if fmt == "bf16" else "int8",
    )
    engine = LlamaCpp(model, threads, tools)
    try:
        serve(about, engine.run)
    finally:
        engine.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
