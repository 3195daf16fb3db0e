"""`python -m postroom` is the command line."""

from __future__ import annotations

from postroom.cli import main

if __name__ == "__main__":
    main()
