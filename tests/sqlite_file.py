"""Another SQLite database than the tests' own, for tests that are about how one is set up."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from django.db import connection, connections


@contextmanager
def plain_copy(folder: Path, options: dict[str, Any]) -> Iterator[None]:
    """Have this process use a copy of its database without a write-ahead log, and with these options.

    A copy, because SQLite changes the journal of a file only while nobody else has it open.
    """
    path = folder / "plain.sqlite3"
    connection.ensure_connection()
    with closing(sqlite3.connect(path)) as copy:
        connection.connection.backup(copy)
        assert copy.execute("PRAGMA journal_mode=delete").fetchone() == ("delete",)
    connections.close_all()
    before = {name: connection.settings_dict[name] for name in ("NAME", "OPTIONS")}
    connection.settings_dict.update(NAME=str(path), OPTIONS=options)
    try:
        yield
    finally:
        connections.close_all()
        connection.settings_dict.update(before)
