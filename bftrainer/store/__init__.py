"""The books: SQLite through SQLAlchemy, with Alembic migrations from the first table on."""

from bftrainer.store.sql import NameTakenError, SqlStore, StoreError

__all__ = ["NameTakenError", "SqlStore", "StoreError"]
