"""The operator's page: recent requests, the last minutes, and the files that show them in a browser."""
