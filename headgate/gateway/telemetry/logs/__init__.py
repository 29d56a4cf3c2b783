"""The access log, what was said where a team wants it logged, and what the server tells its operator."""
