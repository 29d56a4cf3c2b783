"""Kernels for the CPU in C++, compiled when the package is installed."""
