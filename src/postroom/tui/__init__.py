"""The full-screen terminal: everything that needs a person is answered, and everything that happens is seen.

It needs the extra `tui`. Nothing else imports Textual, so that commands start fast without it.
"""
