"""Records as people read them: rows and lines of text, made harmless; what prints or draws them is above."""
