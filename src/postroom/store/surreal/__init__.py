"""Tasks in SurrealDB, embedded or on a server, instead of in the database that has everything else."""
