"""HTTP between users and the daemon, on a Unix socket and over TCP; agents connect on the same ports."""
