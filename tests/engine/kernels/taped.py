"""A CUDA graph where there is no CUDA: what a call launched, done again with the same numbers on the same memory.

Whatever the host decided, or told by value, while it was taped stays as it was then. So a step that depends on the host
in a way that a graph would not see gives a wrong answer here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime.interpreter import GridExecutor

_NUMBERS = -12345.5
"""What memory has that nobody has written to, as far as its dtype can have it."""


class _Tape(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], None]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = [each for each in tree_leaves(out) if isinstance(each, torch.Tensor)]
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        name = func.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "item"), "a graph cannot be captured where the host reads the device"
        if "empty" in name:
            self.calls.append(lambda: [each.fill_(_NUMBERS) for each in tensors] and None)
            return out
        memory = {each.untyped_storage().data_ptr() for each in given}
        new = [each for each in tensors if each.untyped_storage().data_ptr() not in memory]
        if new or func._schema.is_mutable:

            def again() -> None:
                found = func(*args, **(kwargs or {}))
                again = [each for each in tree_leaves(found) if isinstance(each, torch.Tensor)]
                for kept, each in zip(tensors, again, strict=True):
                    if any(kept is one for one in new):
                        kept.copy_(each)

            self.calls.append(again)
        return out


@contextmanager
def _launches(tape: _Tape) -> Iterator[None]:
    """Kernels go to the tape as a whole."""
    launch = GridExecutor.__call__

    def taped(self: GridExecutor, *args: Any, **kwargs: Any) -> None:
        with torch.utils._python_dispatch._disable_current_modes():
            launch(self, *args, **kwargs)
        tape.calls.append(lambda: launch(self, *args, **kwargs))

    GridExecutor.__call__ = taped
    try:
        yield
    finally:
        GridExecutor.__call__ = launch


def taped(step: Callable[[], None]) -> Callable[[], None]:
    """See Recorder."""
    step()
    tape = _Tape()
    with _launches(tape), tape:
        step()

    def replay() -> None:
        for call in tape.calls:
            call()

    return replay
