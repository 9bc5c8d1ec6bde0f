"""Find the nearest inside PostgreSQL: by comparing each in a small scope, by an HNSW index in a large one."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np
from django.apps import apps
from django.db import connections

from agentcore import database
from agentcore.exceptions import ConfigurationError
from agentcore.vectors.base import Embedding, Hit, Kind, Values
from agentcore.vectors.table import TableIndex, space

APP = "agentcore.vectors.pgvector"
# Up to here each vector is compared, which is exact; above, HNSW is asked first.
EXACT_UP_TO = 10_000
# pgvector indexes no longer vectors; those are always compared one by one.
MAX_INDEXED = 2000
EF_SEARCH = 100

# Each statement is made of our own table's name and placeholders alone.
COUNT = "SELECT count(*) FROM (SELECT 1 FROM {table} WHERE space = ANY(%s) LIMIT %s) AS part"
# MATERIALIZED: the scope first, whatever the planner thinks of it.
EXACT = (
    "WITH part AS MATERIALIZED (SELECT item, data FROM {table} WHERE space = ANY(%s)) "
    "SELECT item, data <#> %s::vector AS distance FROM part ORDER BY distance, item LIMIT %s"
)
BY_INDEX = (
    "SELECT item, data::vector({dimension}) <#> %s::vector({dimension}) AS distance FROM {table} "
    "WHERE space = ANY(%s) AND embedder = {embedder} AND dimension = {dimension} ORDER BY distance LIMIT %s"
)
SETTINGS = f"SET LOCAL hnsw.iterative_scan = strict_order; SET LOCAL hnsw.ef_search = {EF_SEARCH}"
CREATE = (
    "CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {table} "
    "USING hnsw ((data::vector({dimension})) vector_ip_ops) WHERE embedder = {embedder} AND dimension = {dimension}"
)


class PgvectorIndex(TableIndex):
    """Keeps vectors in a table of the app `agentcore.vectors.pgvector` (extra `agentcore[pgvector]`).

    In a scope of more than 10,000 vectors HNSW may miss a near one now and then. `prepare` makes its index.
    """

    def __init__(self) -> None:
        where = "AGENTCORE['VECTOR_INDEX'] is 'pgvector'"
        if importlib.util.find_spec("pgvector") is None:
            raise ConfigurationError(f"{where}, which needs the package pgvector: pip install 'agentcore[pgvector]'.")
        if not apps.is_installed(APP):
            raise ConfigurationError(f"{where}, which needs {APP!r} in INSTALLED_APPS.")
        if (vendor := connections[database.alias()].vendor) != "postgresql":
            raise ConfigurationError(f"{where}, and the database is {vendor}; it must be postgresql.")

    @property
    def _model(self) -> Any:
        return apps.get_app_config("agentcore_pgvector").get_model("PgVector")

    def search(self, collection: str, embedding: Embedding, *, scopes: Sequence[str], k: int) -> list[Hit]:
        """Return the nearest within `scopes`."""
        if k < 1 or not scopes:
            return []
        spaces = [space(collection, scope, embedding.kind) for scope in dict.fromkeys(scopes)]
        numbers = _text(embedding.values)
        if len(embedding.values) <= MAX_INDEXED and self._is_large(spaces):
            found = self._by_index(spaces, embedding.kind, numbers, k)
            if len(found) == k:
                return found
        return _hits(self._rows(EXACT, [spaces, numbers, k]))

    def prepare(self, kind: Kind) -> None:
        """Make the HNSW index of this kind, while others read and write; what is there stays."""
        if kind.dimension > MAX_INDEXED:
            return
        digest = hashlib.sha256(f"{kind.embedder}\0{kind.dimension}".encode()).hexdigest()[:16]
        with connections[database.alias()].cursor() as cursor:
            cursor.execute(self._statement(CREATE, kind, name=f"agentcore_hnsw_{digest}"))

    def _columns(self, values: Values) -> dict[str, Any]:
        return {"data": values}

    def _is_large(self, spaces: list[UUID]) -> bool:
        ((count,),) = self._rows(COUNT, [spaces, EXACT_UP_TO + 1])
        return bool(count > EXACT_UP_TO)

    def _by_index(self, spaces: list[UUID], kind: Kind, numbers: str, k: int) -> list[Hit]:
        with database.atomic(), connections[database.alias()].cursor() as cursor:
            cursor.execute(SETTINGS)
            cursor.execute(self._statement(BY_INDEX, kind), [numbers, spaces, k])
            return _hits(cursor.fetchall())

    def _rows(self, statement: str, params: list[Any]) -> list[tuple[Any, ...]]:
        with connections[database.alias()].cursor() as cursor:
            cursor.execute(self._statement(statement), params)
            return list(cursor.fetchall())

    def _statement(self, text: str, kind: Kind | None = None, **names: str) -> str:
        table = connections[database.alias()].ops.quote_name(self._model._meta.db_table)
        # The planner takes a partial index only for constants that it sees when it plans.
        given = {"embedder": _literal(kind.embedder), "dimension": int(kind.dimension)} if kind else {}
        return text.format(table=table, **given, **names)


def _literal(text: str) -> str:
    """Return a text as PostgreSQL writes it, for a statement in which `%` is a placeholder's."""
    quoted = text.replace("\\", "\\\\").replace("'", "\\'").replace("%", "%%")
    return f"E'{quoted}'"


def _text(values: Values) -> str:
    return f"[{','.join(map(str, np.asarray(values, dtype=float).tolist()))}]"


def _hits(rows: Sequence[tuple[Any, ...]]) -> list[Hit]:
    hits = [Hit(id=int(item), score=-float(distance)) for item, distance in rows]
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))
