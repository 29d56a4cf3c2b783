"""What an operator writes: read, checked, described, and what of it holds without a restart."""
