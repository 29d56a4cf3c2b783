"""What the scheduler decides with: who waits, whose turn it is, how large a step may be, what it computes of whom."""
