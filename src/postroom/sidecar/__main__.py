"""`python -m postroom.sidecar`."""

from __future__ import annotations

import sys

from postroom.sidecar.main import main

sys.exit(main())
