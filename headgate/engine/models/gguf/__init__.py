"""GGUF files: llama.cpp's metadata and blocks, as a checkpoint's configuration and tensors."""
