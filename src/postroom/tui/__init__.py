"""The full-screen terminal: everything that needs a person is answered, and everything that happens is seen.

Nothing else imports Textual, so that commands start fast without it.
"""
