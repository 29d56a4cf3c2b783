"""Where cached answers live."""
