"""Steps whose inputs lie on the device: rows of sequences, a step ahead of the host, and recordings."""
