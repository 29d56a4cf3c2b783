"""What hangs on a lane: its adapters and its sleep, and what it tells of itself."""
