"""SQL: the engine, the tables, their migrations, and one module of statements per noun.

Nothing above this package writes SQL or imports SQLAlchemy. Every statement is a function `fn(connection, …)`
that runs inside `await database.write(...)` or `await database.read(...)`.
"""
