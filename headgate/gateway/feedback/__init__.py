"""What apps say of the answers they were given, and what is learned from that."""
