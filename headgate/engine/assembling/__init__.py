"""From files to a lane that serves: kernels are tried, models read, the memory divided, the parts put together."""
