"""Installed without a compiler: the engine's tests and the embedder's, with the package's compiled parts left out."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# How checkpoints are read, which plain torch is asked for by name or which knows of no kernels, is the same as well.
READ = (
    *("adapters", "fp8_checkpoints", "gguf", "gguf_reader", "hub", "mxfp4_checkpoints", "packed_checkpoints"),
    *("sampling_defaults", "tensors"),
)
# Plain torch by the setting is as ever; and all families have their logits compared with it, so that a few generate.
FEWER = (
    "not reference] and not [reference-"
    " and not (whatever_happens_around and not (qwen3 or gemma3 or phi3-longrope or mixtral))"
    " and not (other_families_write and not (olmo2 or granite-moe))"
)
# What computes; how requests wait and texts are split is the same either way. The sampler is tested with plain torch
# beside the compiled kernels.
ASKED = [
    *(f"tests/engine/{part}" for part in ("kernels", "models", "quant")),
    *(f"tests/engine/test_{part}.py" for part in ("generation", "local_model", "step_loop")),
    *(f"tests/cache/test_cache_{part}.py" for part in ("embedder", "encoder", "comparator")),
]


def test_suite_passes_without_compiled_parts(tmp_path: Path) -> None:
    left_out = shutil.ignore_patterns("*.so", "__pycache__", Path(__file__).name)
    for part in ("headgate", "tests"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=left_out)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    done = subprocess.run(
        # Triton's kernels are no part of the build.
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-x",
                "--ignore-glob=*/test_triton*",
                "--ignore-glob=*/test_interpreter*",
                "-k",
                FEWER,
            ),
            *(f"--ignore=tests/engine/models/test_{part}.py" for part in READ),
            *ASKED,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout
