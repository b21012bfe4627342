"""Runs migrations on the connection that `Database.migrate` gives; each revision is one transaction."""

from alembic import context

from isthmus.service.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    transaction_per_migration=True,
    render_as_batch=connection.dialect.name == "sqlite",  # SQLite changes a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
