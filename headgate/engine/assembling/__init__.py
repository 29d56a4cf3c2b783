"""From files to a lane that serves: models are read and tried, the memory is divided, the parts are put together."""
