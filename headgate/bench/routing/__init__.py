"""Figures of the router: what its estimates are worth, whether its targets hold, what an attack achieves."""
