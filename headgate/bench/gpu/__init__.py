"""The stages of `headgate bench gpu`; `gpu_check.py` runs them."""
