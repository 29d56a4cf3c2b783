"""What passing requests on to other servers takes, here and in other gateways."""
