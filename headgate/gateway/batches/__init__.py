"""`/v1/batches`: the requests of a file, answered in steps that nobody waits for."""
