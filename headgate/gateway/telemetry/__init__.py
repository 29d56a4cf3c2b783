"""What is known of a request when it has ended, and where that goes: metrics, logs, spans."""
