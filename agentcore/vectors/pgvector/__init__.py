"""Vectors in PostgreSQL with pgvector: an app of its own, so that nobody else needs the extension."""
