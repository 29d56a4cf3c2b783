"""What clients keep on the server: uploaded files and what batches make of them, in one data folder."""
