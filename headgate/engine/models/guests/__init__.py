"""Models that only transformers has code for, with our attention, cache and linear layers in them."""
