"""Linear layers by weight format."""
