"""The subcommands of `headgate`: each file one group, for a server over HTTP or for files."""
