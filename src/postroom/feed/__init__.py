"""Live views for people and agents: sources of records past a cursor, and the forms in which they are written."""
