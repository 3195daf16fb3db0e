"""Showing and following tasks."""
