"""Where a request goes: names, policies and prices beforehand, and what is learned of the answers."""
