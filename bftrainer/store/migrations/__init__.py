"""Alembic's scripts: one file per change of the tables, never edited once released."""
