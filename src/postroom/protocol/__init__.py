"""The rules of Postroom as plain functions and frozen data: no I/O, no clock, no randomness.

Time, randomness and ids are handed in. Everything here can be tested as a table.
"""
