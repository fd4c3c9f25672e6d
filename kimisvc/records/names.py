"""What an instance and a generation may be called, wherever that is asked.

In a profile, behind `--instance` or `--to`, and as what lies in a folder of the state: the
names become part of paths, of units and of labels of metrics.
"""

from __future__ import annotations

import re

INSTANCE = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
"""It must match the whole name."""
INSTANCE_RULE = (
    "lower-case letters, digits, dash and underscore, 32 at most, a letter or digit first"
)
LAST_GENERATION = 1_000_000
"""The highest number: a box that makes one an hour takes a century to come to the end."""
