"""The daemon's store, in SQLite through SQLAlchemy; Alembic migrates databases of earlier versions."""
