"""The page that shows what happens, and the process that serves it: a client of the daemon."""
