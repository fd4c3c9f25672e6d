"""Has tests, and what they start, take signals as they would in the foreground of a terminal.

A shell that runs `make test` in the background has all of it ignore SIGINT
(POSIX, 2.11 Signals and Error Handling), and Python then installs no handler;
nohup(1) has it ignore SIGHUP.
"""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
