"""A checkpoint's tensors by name, what they are packed in, and the layers that are made of them."""
