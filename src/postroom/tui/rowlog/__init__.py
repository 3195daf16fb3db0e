"""Rows of text by the hundred thousand: scrolled, folded, searched, copied."""
