"""Settings of hypothesis for every test: the same examples each time, and no wall time judged.

A run says something of the commit and not of luck. To look for new examples:
pytest --hypothesis-profile=search
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("kimisvc", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("kimisvc")
