"""Models of this process as destinations: prompts in, answers out, asleep or awake, with adapters or without."""
