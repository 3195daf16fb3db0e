"""PostgreSQL as the database: its address, its tables, its faults, and the statements' way to it.

One schema per organisation, `org_<name>`, and one, `identity`, for the identities of all. An organisation sees the
latter through views of its own rows (`tables`), so a statement is the same as on SQLite, where each organisation has
files of its own.
"""
