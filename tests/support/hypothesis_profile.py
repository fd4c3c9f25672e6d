"""Settings of hypothesis for every test: no wall time is judged, however busy the machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("kimisvc", deadline=None)
settings.load_profile("kimisvc")
