"""Kernels for NVIDIA GPUs, written in Triton: imported only where they are asked for."""
