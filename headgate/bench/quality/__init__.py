"""`headgate bench quality`: what 8 and 4 bits cost."""
