"""Builds the CPU kernels where that can be done; everything else about the package is in pyproject.toml."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FOLDER = "headgate/engine/kernels/cpu"
# Those with torch's headers take most of the time, whatever is in them: they are few, come first, and are optimised
# less, since they only check arguments and divide work.
TORCH_SOURCES = ("step_ops", "packed_ops", "native", "sampling_ops", "delta_ops")
SOURCES = (
    *(
        "int4",
        "int8",
        "int8_vnni",
        "int8_avx2",
        "loops",
        "bf16",
        "sampling",
        "attention_bf16",
        "experts",
        "experts_bf16",
        "experts_loops",
        "mxfp4",
        "step",
        "decode",
        "outline",
        "delta_loops",
    ),
    *("attention_plan", "choice", "team"),
)


class BuildTogether(build_ext):
    """Compiles the sources of an extension side by side, and only those that changed since the last time."""

    def build_extension(self, ext: Extension) -> None:
        """Compile what changed of ``ext``'s sources, one at a time on every processor, and link them."""
        temporary = Path(self.build_temp)
        temporary.mkdir(parents=True, exist_ok=True)
        flags, before = _flags(ext, self.compiler.compiler_so_cxx), temporary / f"{ext.name}.flags"
        afresh = self.force or not before.exists() or before.read_text() != flags

        def compiled(source: str) -> str:
            (object_file,) = self.compiler.object_filenames([source], output_dir=self.build_temp)
            depends = Path(object_file).with_suffix(".d")
            if afresh or not _newer(Path(object_file), depends):
                torch_only = Path(source).stem in TORCH_SOURCES
                self.compiler.compile(
                    [source],
                    output_dir=self.build_temp,
                    include_dirs=ext.include_dirs,
                    extra_postargs=[
                        *ext.extra_compile_args,
                        "-O1" if torch_only else "-O3",
                        *("-MMD", "-MF", str(depends)),
                    ],
                )
            return object_file

        with ThreadPoolExecutor(_jobs()) as pool:
            ext.extra_objects = ext.depends = list(pool.map(compiled, ext.sources))
        before.write_text(flags)
        ext.sources = []
        super().build_extension(ext)


def _jobs() -> int:
    """As many compilers at a time as there are cores, or as MAX_JOBS says, which torch's own builds obey too."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(os.environ.get("MAX_JOBS") or cores))


def _flags(ext: Extension, compiler: list[str]) -> str:
    return "\n".join([*compiler, *ext.include_dirs, *ext.extra_compile_args, *TORCH_SOURCES, sys.version])


def _newer(object_file: Path, depends: Path) -> bool:
    """Whether the object is newer than all that it was made of, which the compiler wrote down as a rule for make."""
    if not object_file.exists() or not depends.exists():
        return False
    made_of = depends.read_text().replace("\\\n", " ").split(":", 1)[1].replace("\\ ", "\0").split()
    files = [Path(name.replace("\0", " ")) for name in made_of]
    made = object_file.stat().st_mtime
    return all(file.exists() and file.stat().st_mtime <= made for file in files)


def encoder() -> Extension:
    """The pass of the sentence encoder: plain C++, called through ctypes."""
    folder = "headgate/cache/native"
    return Extension(
        "headgate.cache._encoder",
        sources=[f"{folder}/{name}.cpp" for name in ("encoder", "team", "avx2", "avx512")],
        depends=[str(path) for kind in ("*.h", "*.inc") for path in sorted(Path(folder).glob(kind))],
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
            sources=[f"{FOLDER}/{name}.cpp" for name in (*TORCH_SOURCES, *SOURCES)],
            depends=[str(path) for kind in ("*.h", "*.inc") for path in sorted(Path(FOLDER).glob(kind))],
            include_dirs=[str(root / "include"), str(root / "include/torch/csrc/api/include")],
            library_dirs=[str(root / "lib")],
            libraries=["torch_cpu", "c10"],
            # NaN and infinity must keep their meaning: no -ffast-math. Compiled with OpenMP but not linked with it:
            # torch brings its own, and a second one in the process would fight it over the cores.
            extra_compile_args=[
                *("-std=c++20", "-g0", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-Wno-psabi"),
                *(["-fopenmp"] if linux else []),
            ],
            language="c++",
            optional=True,
        ),
    ]


def _none(why: str) -> list[Extension]:
    print(f"headgate: no native CPU kernels are built: {why}; plain torch is used", file=sys.stderr)
    return []


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildTogether})
