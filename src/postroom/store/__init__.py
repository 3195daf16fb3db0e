"""SQL: the engine, the tables, their migrations, and one module of statements per noun.

No module above this package writes SQL or imports SQLAlchemy. A statement is a function `fn(connection, …)` that runs
inside `await database.write(...)` or `await database.read(...)`.
"""
