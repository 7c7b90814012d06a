"""What the daemon stores, in SQLite through SQLAlchemy; Alembic migrates databases of earlier versions."""
