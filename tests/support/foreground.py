"""Has tests, and what they start, take SIGINT as they would in the foreground.

A shell that runs `make test` in the background has all of it ignore SIGINT
(POSIX, 2.11 Signals and Error Handling), and Python then installs no handler.
"""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
