"""Kernels on a GPU that they were never run on: tried in the shapes of the models, before these are loaded.

In a process apart, `python -m headgate.engine.assembling.trial`: after an illegal access CUDA refuses all that the
process wants of it, and what hangs on a GPU cannot be interrupted. What was right once is not tried again by the same
programs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from headgate.engine.device import computing_on
from headgate.engine.kernels import checks
from headgate.engine.kernels.checks.fp8 import fp8_checks
from headgate.engine.kernels.checks.inputs import Draw, Sizes
from headgate.engine.kernels.checks.line import Line
from headgate.engine.kernels.checks.operations import kernel_checks
from headgate.engine.kernels.checks.rows import row_checks
from headgate.engine.kernels.choice import KernelChoice
from headgate.engine.kernels.interface import Kernels
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.models.spec import DecoderSpec

logger = logging.getLogger(__name__)

LIMIT_S = 900.0
"""For all shapes, with all that is compiled the first time."""
_WIDEST, _EXPERTS = 32768, 16
"""Widest MLP and most experts that are tried: more of them are more programs of the same kind."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """What a model asks of kernels."""

    sizes: Sizes
    dtype: torch.dtype

    @classmethod
    def of(cls, spec: DecoderSpec, dtype: torch.dtype) -> Shapes:
        """Of a model: its own widths, and steps of few and of many tokens."""
        experts = spec.experts
        sizes = Sizes(
            hidden=spec.hidden,
            width=min(spec.mlp_width or (experts.width if experts is not None else 0), _WIDEST),
            heads=spec.heads,
            kv_heads=spec.kv_heads,
            head_dim=spec.head_dim,
            head_norms=spec.qk_norm == "head",
            biases=spec.qkv_bias or spec.output_bias or spec.mlp_bias,
            experts=0 if experts is None else min(experts.count, _EXPERTS),
            expert_width=0 if experts is None else experts.width,
            per_token=0 if experts is None else min(experts.per_token, _EXPERTS),
            shared_width=0 if experts is None else min(experts.shared_width or 0, _WIDEST),
            normalize=experts is None or experts.normalize,
            tokens=(1, 3, 40, 300),
            decoding=((0, 1), (15, 16), (127, 128), (1000, 1001), (4095, 4096)),
            prompts=((0, 300), (513, 530), (99, 100), (0, 2)),
        )
        return cls(sizes, dtype)


def proved(
    choice: KernelChoice, device: torch.device, shapes: Sequence[Shapes], *, limit_s: float = LIMIT_S
) -> KernelChoice:
    """The choice, if its kernels were run on such a GPU before or are right now; else plain torch."""
    if not choice.untried:
        return choice
    logger.info("trying the kernels on %s: a minute or two the first time", choice.untried)
    wrong = _apart(choice.kernels, device, shapes, limit_s)
    if not wrong:
        return replace(choice, why=f"{choice.why}; right when tried on {choice.untried}", untried="")
    return KernelChoice(ReferenceKernels(), False, f"plain torch; Triton's kernels, tried on {choice.untried}: {wrong}")


def wrong_in(kernels: Kernels, device: torch.device, shapes: Iterable[Shapes]) -> str:
    """The first check that fails, or what is raised; empty where all are as they must be."""
    try:
        with torch.inference_mode(), computing_on(device):
            for line in chain.from_iterable(_lines(kernels, device, each) for each in shapes):
                if not line.ok:
                    return f"{line.name}: {line.text}"
            if device.type == "cuda":
                torch.cuda.synchronize(device)  # what fails late fails here
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:500]
    return ""


def _lines(kernels: Kernels, device: torch.device, shapes: Shapes) -> Iterator[Line]:
    dtype = shapes.dtype
    yield from kernel_checks(kernels, device, dtype, shapes.sizes)
    rows = kernels.rows()
    if rows is not None:
        yield from row_checks(rows, Draw(device, dtype), 5000, 1)
    if kernels.fp8 is not None and dtype == torch.bfloat16:
        yield from fp8_checks(kernels, Draw(device, dtype), shapes.sizes)


def _apart(kernels: Kernels, device: torch.device, shapes: Sequence[Shapes], limit_s: float) -> str:
    given = [{"sizes": asdict(each.sizes), "dtype": str(each.dtype).removeprefix("torch.")} for each in shapes]
    task = {"device": str(device), "fp8": kernels.fp8 is not None, "shapes": given}
    kept = _kept(json.dumps(task), device)
    with suppress(OSError):  # a folder that may not be looked into holds nothing for us
        if kept.exists():
            return ""
    try:
        done = _run(json.dumps(task), limit_s)
    except subprocess.TimeoutExpired:
        return f"not done after {limit_s:.0f} s"
    except OSError as error:
        return f"no process could be started: {error}"
    if done.returncode != 0:
        return f"the process that tried them ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    wrong = str(json.loads(done.stdout.splitlines()[-1])["wrong"])
    if not wrong:
        with suppress(OSError):  # where nothing can be kept they are tried at each start
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.touch()
    return wrong


def _run(task: str, limit_s: float) -> subprocess.CompletedProcess[str]:
    watched, held = os.pipe()
    try:
        return subprocess.run(
            [sys.executable, "-P", "-m", __name__, str(watched)],
            pass_fds=(watched,),
            # It imports what this process does: no more, as from the folder it is started in, and no less.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            input=task,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    finally:
        os.close(watched)
        os.close(held)


def _kept(task: str, device: torch.device) -> Path:
    """A file that is there once the task was right: beside what Triton has compiled, and for the same programs."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    known = hashlib.sha256("\n".join([task, gpu, torch.__version__]).encode())
    folder, triton = Path(next(iter(checks.__path__))).parent, find_spec("triton")
    # The package says its version in there, whatever the distribution is called that brought it.
    said = [Path(triton.origin)] if triton is not None and triton.origin else []
    for file in (*said, *sorted(folder.rglob("*.py"))):
        known.update(file.read_bytes())
    own, home = os.environ.get("TRITON_CACHE_DIR"), os.environ.get("TRITON_HOME") or os.path.expanduser("~")
    cache = Path(own) if own else Path(home) / ".triton" / "cache"
    return cache / f"headgate-{known.hexdigest()[:32]}"


def _end_with_parent(watched: int) -> None:
    """End once nobody holds the other end of the pipe: a server that is ended meanwhile leaves no process behind."""
    os.read(watched, 1)
    os._exit(1)


def _main() -> None:
    threading.Thread(target=_end_with_parent, args=(int(sys.argv[1]),), daemon=True).start()
    task: dict[str, Any] = json.loads(sys.stdin.read())
    from headgate.engine.kernels.triton.kernels import TritonKernels

    shapes = [Shapes(Sizes(**each["sizes"]), getattr(torch, each["dtype"])) for each in task["shapes"]]
    wrong = wrong_in(TritonKernels(fp8=task["fp8"]), torch.device(task["device"]), shapes)
    sys.stdout.write(json.dumps({"wrong": wrong}) + "\n")


if __name__ == "__main__":
    _main()
