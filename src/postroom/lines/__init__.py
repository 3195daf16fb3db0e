"""Words, and rows of text in a few styles, of which all that agents wrote is made harmless."""
