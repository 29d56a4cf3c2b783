"""Host values on their way to the device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def upload(values: Sequence[int] | Sequence[float] | np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A one-dimensional tensor of `values` on `device`.

    On CUDA it leaves from pinned memory and does not wait for the device: a copy from ordinary memory would stall the
    step until every kernel queued before it is done.
    """
    host = torch.as_tensor(values, dtype=dtype)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host
