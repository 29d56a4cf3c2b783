"""Who may ask, for what and how much: keys, what team files say, limits, budgets, the ledger."""
