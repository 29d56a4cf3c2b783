"""The road's side of the answer cache: what is asked of it, what it keeps, and how its hits are audited."""
