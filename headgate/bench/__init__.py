"""Every figure the README claims, as a command."""
