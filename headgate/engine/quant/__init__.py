"""Weight formats: those of checkpoints, and the linear layers that are computed in them."""
