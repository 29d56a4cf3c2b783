"""The stages of `headgate bench gpu`; `command.py` runs them."""
