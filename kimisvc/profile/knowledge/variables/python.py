"""The variables of Python that can end vLLM before its first line, or put other code into it.

One row each (Python manual, Command line and environment; each refused value was
seen to end Python 3.11).
"""

from __future__ import annotations

import codecs
import re
from functools import partial

from kimisvc.profile.knowledge.variables.grammar import exact_words, folders, switch
from kimisvc.profile.knowledge.variables.row import ActsOn, Variable
from kimisvc.profile.values import shown
from kimisvc.records.profile import Risk

_LEAST_DIGITS = 640
_SEED = re.compile(r"[0-9]{1,10}")
_ENDS = "Python would end at once"


def _own_library(value: str) -> str:
    """Given where Python is to find its own library, return that vLLM's finds it by itself."""
    if not value:
        return ""
    return (
        f"{shown(value)} ends Python before vLLM begins, unless its whole library is there: that "
        "of an environment is found by itself. Leave it out"
    )


def _seed(value: str) -> str:
    number = _SEED.fullmatch(value) is not None and int(value) < 2**32
    if value in ("", "random") or number:
        return ""
    return f'{shown(value)} is no seed: {_ENDS}. Write "random", or a number below {2**32}'


def _digits(value: str) -> str:
    number = re.fullmatch(r"[0-9]{1,9}", value)
    if not value or (number and (int(value) == 0 or int(value) >= _LEAST_DIGITS)):
        return ""
    return f"{shown(value)} is no limit: {_ENDS}. Write 0 for none, or {_LEAST_DIGITS} or more"


def _encoding(value: str) -> str:
    """Given ENCODING[:ERRORS] for the standard streams, return what is wrong with it."""
    encoding = value.partition(":")[0]
    try:
        codecs.lookup(encoding or "utf-8")
    except (LookupError, ValueError):
        return f'{shown(value)} is no encoding: {_ENDS}. Write "utf-8"'
    return ""


python = partial(Variable, acts_on=ActsOn.PROCESS, document="Python manual, Environment variables")
safe = partial(python, risk=Risk.SAFE, why="changes how Python starts or reports only")
other_code = partial(
    python,
    risk=Risk.RISKY,
    why="puts code of another's in the place of vLLM's own or of its libraries",
)

PYTHON: tuple[Variable, ...] = (
    other_code("PYTHONHOME", "Where Python's own library is.", _own_library),
    other_code("PYTHONPLATLIBDIR", "Folder of Python's own library.", _own_library),
    other_code("PYTHONPATH", "Folders where modules are looked for first.", folders(":")),
    safe("PYTHONSTARTUP", "A file that an interactive Python runs.", None),
    python("PYTHONINSPECT", "Anything keeps Python waiting for input after its end.", None,
           Risk.RISKY, "hides with which status vLLM ended, so that nothing starts it again"),
    safe("PYTHONHASHSEED", "Seed of the hashes of strings.", _seed),
    safe("PYTHONUTF8", "1 makes UTF-8 the encoding of all files.", switch),
    python("PYTHONMALLOC", "What gives Python its memory.",
           exact_words("default", "malloc", "pymalloc", "debug", "malloc_debug", "pymalloc_debug",
                       "mimalloc", "mimalloc_debug", otherwise=_ENDS),
           Risk.SAFE_ISH, "changes speed and memory of Python only"),
    safe("PYTHONINTMAXSTRDIGITS", "Digits a number may have in text.", _digits),
    safe("PYTHONIOENCODING", "Encoding of the standard streams.", _encoding),
    python("PYTHONOPTIMIZE", "Anything leaves checks of the code out.", None, Risk.SAFE_ISH,
           "vLLM then goes on where it would have stopped at a fault of its own"),
)  # fmt: skip
"""Every variable of Python that is judged here; the others change no more than what is written."""
