"""Benchmarks: Postroom beside what it is built on, measured in one run on one machine.

A number alone says more about the machine than about Postroom, so each benchmark measures a floor too and takes
turns between the two; what counts is the ratio. Nothing here passes or fails. `make bench` runs them all.
"""
