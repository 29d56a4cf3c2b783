"""What an sdist carries: where it is made there may be no torch, and `setup.py` names no sources of kernels then."""

from __future__ import annotations

from stack_files import ROOT


def test_sources_of_the_kernels_are_in_an_sdist() -> None:
    (line,) = [line for line in (ROOT / "MANIFEST.in").read_text().splitlines() if not line.startswith("#")]
    command, folder, *patterns = line.split()
    assert (command, folder) == ("recursive-include", "headgate")
    folders = [ROOT / "headgate/engine/kernels/cpu", ROOT / "headgate/cache/native"]
    made_of = {path.suffix for folder in folders for path in folder.iterdir() if path.is_file()} - {".py", ".so"}
    assert {f"*{suffix}" for suffix in made_of} <= set(patterns)
