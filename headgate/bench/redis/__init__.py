"""`headgate bench redis`: two gateways on one Redis."""
