"""What /metrics publishes: a file a subject, and the catalogue of all names."""
