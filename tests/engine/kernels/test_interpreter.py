"""The Triton kernels without a GPU: the tests of them run in Triton's interpreter, which is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from triton_cases import needs_triton

pytestmark = needs_triton
HERE = Path(__file__).parent


def test_kernels_give_what_the_reference_gives_in_the_interpreter() -> None:
    files = sorted(str(file) for file in HERE.glob("test_triton_*.py"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "--noconftest", *files],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout
