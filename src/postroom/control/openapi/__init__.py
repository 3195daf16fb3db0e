"""The document that describes the HTTP API (OpenAPI 3.1), made of the routes when somebody asks for it.

Nothing of it is made at the start: models for 60 answers would cost more than all other parts of the API together.
"""
