"""Request and response types per protocol, the error shape, server-sent events."""
