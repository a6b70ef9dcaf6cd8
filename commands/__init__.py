"""One module per `flipscope` command: parse, call `probe` or `tui`, print."""
