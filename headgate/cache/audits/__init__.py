"""Whether what was served by meaning was right: labels, what they say of entries, and the watch over the rate."""
