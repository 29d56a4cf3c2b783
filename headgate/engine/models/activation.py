"""What MLPs have between their products."""

from typing import Literal

Activation = Literal["silu", "gelu", "relu2"]
"""`gelu` is the one by tanh. `relu2` is the square of what is positive, of an MLP without gates."""
