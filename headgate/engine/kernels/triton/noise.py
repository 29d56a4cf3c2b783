"""The sampler's noise on the device: the integers of `headgate.engine.sampling.noise`, bit for bit."""

from __future__ import annotations

import triton
import triton.language as tl

from headgate.engine.sampling import noise

_WEYL = tl.constexpr(noise.WEYL)
_MULTIPLIER_1 = tl.constexpr(noise.MULTIPLIER_1)
_MULTIPLIER_2 = tl.constexpr(noise.MULTIPLIER_2)


@triton.jit
def _mix(value: tl.tensor) -> tl.tensor:
    value ^= (value >> 16) & 0xFFFF
    value *= _MULTIPLIER_1
    value ^= (value >> 15) & 0x1FFFF
    value *= _MULTIPLIER_2
    value ^= (value >> 15) & 0x1FFFF
    return value


@triton.jit
def gumbel(high: tl.tensor, low: tl.tensor, tokens: tl.tensor) -> tl.tensor:
    """Float32 noise of int32 tokens for a draw with this key, two int32 halves."""
    bits = _mix(_mix(tokens * _WEYL + high) ^ low)
    uniform = ((bits & 0x7FFFFFFF).to(tl.float32) + 0.5) * 4.656612873077393e-10
    uniform = tl.minimum(uniform, 0.999999940395355224609375)
    # log(1 - u), to the last bits near 0 as well: the error of the difference is that of its logarithm's factor.
    rest = 1.0 - uniform
    small = rest == 1.0
    log = tl.where(small, -uniform, tl.log(rest) * (uniform / tl.where(small, 1.0, 1.0 - rest)))
    return -tl.log(-log)


@triton.jit
def splitmix64(value: tl.tensor) -> tl.tensor:
    """One output of splitmix64 at the uint64 state `value`."""
    value = value + 0x9E3779B97F4A7C15
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB
    return value ^ (value >> 31)
