"""What has been computed before: key-value blocks of prefixes, whole answers, answers to similar questions."""
