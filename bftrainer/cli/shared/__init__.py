"""What several commands share: options and their types, tables, completion, the connection to the daemon."""
