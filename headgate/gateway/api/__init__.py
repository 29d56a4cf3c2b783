"""HTTP handlers, one thin file per endpoint family."""
