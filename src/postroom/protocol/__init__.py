"""The rules of Postroom as plain functions and frozen data: no I/O, no clock, no randomness.

Callers pass in time, randomness and ids, so everything here can be tested as a table.
"""
