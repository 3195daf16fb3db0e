"""Coding agents: turns, what they ask, what they may use."""
