"""Builds the CPU kernels where that can be done; everything else about the package is in pyproject.toml."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from pathlib import Path

from setuptools import Extension, setup

FOLDER = "headgate/engine/kernels/cpu"
SOURCES = (
    *("native", "attention_plan", "choice", "loops", "int8", "int8_ops", "int4", "int4_ops", "bf16", "bf16_ops"),
    *("sampling", "sampling_ops", "step", "step_ops", "experts", "experts_bf16", "experts_loops", "experts_ops"),
)
HEADERS = (
    *("attention_plan.h", "bf16.h", "checks.h", "choice.h", "experts.h", "int4.h", "int8.h", "loops.h", "product.h"),
    *("sampling.h", "step.h", "team.h", "amx.inc", "attention.inc", "avx512.inc", "bf16.inc", "elementwise.inc"),
    *("experts.inc", "int4_rows.inc", "int4_thin.inc", "sampling.inc", "vector.inc"),
)


def encoder() -> Extension:
    """The pass of the sentence encoder: plain C++, called through ctypes."""
    folder = "headgate/cache/native"
    return Extension(
        "headgate.cache._encoder",
        sources=[f"{folder}/encoder.cpp"],
        depends=[f"{folder}/encoder.h"],
        extra_compile_args=["-std=c++20", "-O3", "-g0", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"],
        language="c++",
        optional=True,
    )


def extensions() -> list[Extension]:
    """The kernels, if torch is in this environment: a build that would have to download it goes without them."""
    if os.environ.get("HEADGATE_NO_NATIVE"):
        return _none("HEADGATE_NO_NATIVE is set")
    if sys.platform == "win32":
        return _none("the sources want GCC or Clang")
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return [encoder(), *_none("torch is not in the build environment; pip install --no-build-isolation finds it")]
    root = Path(spec.origin).parent
    linux = platform.system() == "Linux"
    return [
        encoder(),
        Extension(
            "headgate.engine.kernels.cpu._native",
            sources=[f"{FOLDER}/{name}.cpp" for name in SOURCES],
            depends=[f"{FOLDER}/{name}" for name in HEADERS],
            include_dirs=[str(root / "include"), str(root / "include/torch/csrc/api/include")],
            library_dirs=[str(root / "lib")],
            libraries=["torch_cpu", "c10"],
            # NaN and infinity must keep their meaning: no -ffast-math. Compiled with OpenMP but not linked with it:
            # torch brings its own, and a second one in the process would fight it over the cores.
            extra_compile_args=[
                *(
                    "-std=c++20",
                    "-O3",
                    "-g0",
                    "-fno-math-errno",
                    "-fno-trapping-math",
                    "-ffp-contract=fast",
                    "-Wno-psabi",
                ),
                *(["-fopenmp"] if linux else []),
            ],
            language="c++",
            optional=True,
        ),
    ]


def _none(why: str) -> list[Extension]:
    print(f"headgate: no native CPU kernels are built: {why}; plain torch is used", file=sys.stderr)
    return []


setup(ext_modules=extensions())
