"""LoRA adapters: their files, merged when weights are read, or as rows of a batch."""
