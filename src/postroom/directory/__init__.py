"""Agents and their cards."""
