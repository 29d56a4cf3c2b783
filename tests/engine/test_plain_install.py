"""Installed without a compiler: the engine's tests and the embedder's, with the package's compiled parts left out."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What computes; how requests wait and texts are split is the same either way.
ASKED = [
    *(f"tests/engine/{part}" for part in ("kernels", "models", "quant", "sampling")),
    *(f"tests/engine/test_{part}.py" for part in ("generation", "local_model", "step_loop")),
    *(f"tests/cache/test_cache_{part}.py" for part in ("embedder", "encoder", "comparator")),
]


def test_suite_passes_without_compiled_parts(tmp_path: Path) -> None:
    left_out = shutil.ignore_patterns("*.so", "__pycache__", Path(__file__).name)
    for part in ("headgate", "tests"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=left_out)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    done = subprocess.run(
        # Triton's kernels are no part of the build, nor is plain torch by the setting: as ever with and without.
        [sys.executable, "-m", "pytest", "-x", "--ignore-glob=*/test_triton*", "-k", "not reference]", *ASKED],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout
