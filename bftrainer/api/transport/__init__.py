"""Connections of the HTTP server: sockets that are bound and accepted, within bounds for each owner."""
