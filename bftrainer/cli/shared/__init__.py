"""Parts of several commands: options and their types, tables, completion, the connection to the daemon."""
