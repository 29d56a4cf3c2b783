"""Bodies and connections: how they are read, waited for and given up."""
