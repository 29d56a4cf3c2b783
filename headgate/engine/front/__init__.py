"""A model as its users see it, on their own event loop: text in, a stream of text out."""
