r"""systemd's quoting: each place in a unit has rules of its own. Pure.

| place              | `%`  | `$`  | quotes and backslashes                       |
|--------------------|------|------|----------------------------------------------|
| Environment=       | `%%` | `$`  | in double quotes: `\"` and `\\`              |
| ExecStart= words   | `%%` | `$$` | where needed, in single or double quotes     |
| the program itself | `%%` | none | refused by systemd, as is a relative path    |
| lists of paths     | `%%` | `$`  | as ExecStart=                                |
| one path           | `%%` | `$`  | taken as they are: quotes would be part of it |
| an EnvironmentFile | `%`  | `\$` | in double quotes, as a shell reads them      |

Sources: systemd.syntax(7), "Quoting"; systemd.exec(5), Environment= and
EnvironmentFile=; systemd.service(5), "Command lines"; systemd.unit(5),
"Specifiers". Tried on systemd 252.
"""

from __future__ import annotations

import re

from kimisvc.errors import KimisvcError

_PLAIN = re.compile(r"[A-Za-z0-9_=+,./:@%$^~-]+")
"""What needs no quotes in a list of words. A lone `;` would begin another command."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NONCHARACTERS = "\ufdd0-\ufdef" + "".join(
    chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF)
)
_UNPRINTABLE = re.compile(f"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{_NONCHARACTERS}]")
"""Control characters (not the tab: systemd carries it), what some editors take for a line break,
what UTF-8 cannot write, and what systemd takes for broken UTF-8, dropping the whole line."""
_NOT_IN_PROGRAM = re.compile("[\"'\\\\$]")


def environment_assignment(name: str, value: str) -> str:
    """Given a variable, return what stands after `Environment=`: always in quotes.

    A `$` stays as it is: systemd does not expand variables there, and a
    doubled one reaches the process doubled. Raise KimisvcError for what no
    unit can hold.
    """
    _refuse_name(name)
    return _double_quoted(f"{name}={unit_text(value)}".replace("%", "%%"))


def exec_argument(token: str) -> str:
    """Given one argument, return it as one word of `ExecStart=`. Raise KimisvcError."""
    return list_word(token.replace("$", "$$"))


def exec_program(path: str) -> str:
    """Given the program of an `ExecStart=`, return it as its first word. Raise KimisvcError.

    It has to begin with a slash, which also rules out the characters that
    change how systemd runs it (`@ - : + !`), even within quotes. Variables are
    not expanded in it, so `$` could not be written; quotes and backslashes are
    refused by systemd in any writing.
    """
    if not path.startswith("/") or path.endswith("/"):
        raise KimisvcError("bad-executable", f"{path!r} is not the absolute path of a program")
    refused = _NOT_IN_PROGRAM.search(path)
    if refused:
        raise KimisvcError(
            "bad-executable",
            f"systemd runs no program with {refused[0]} in its path: {path!r}",
            hint="give it another name, or a symbolic link with a plain one",
        )
    return list_word(path)


def list_word(text: str) -> str:
    """Given one item of a list that systemd splits at blanks, return it quoted where needed."""
    word = unit_text(text).replace("%", "%%")
    if _PLAIN.fullmatch(word):
        return word
    if '"' in word and "'" not in word:  # JSON stays readable
        return "'" + word.replace("\\", "\\\\") + "'"
    return _double_quoted(word)


def path_value(path: str) -> str:
    """Given a path, return it as the value of a setting that takes one. Raise KimisvcError.

    systemd takes the rest of the line for it, but strips blanks at both ends
    and reads a backslash at the end as a line that goes on.
    """
    if not path.startswith("/") or path != path.strip() or path.endswith("\\"):
        raise KimisvcError(
            "bad-path",
            f"{path!r} cannot stand in a unit: an absolute path is needed, "
            "without a blank or a backslash at its end",
        )
    return unit_text(path).replace("%", "%%")


def environment_file_line(name: str, value: str) -> str:
    r"""Given a variable, return its line of an `EnvironmentFile=`. Raise KimisvcError.

    There `%` and `$NAME` are not expanded, and within double quotes a
    backslash escapes `"`, `\`, backtick and `$`, so that a shell reads the
    line alike.
    """
    _refuse_name(name)
    return f'{name}="' + re.sub(r'(["\\`$])', r"\\\1", unit_text(value)) + '"'


def unit_text(text: str) -> str:
    """Given a text, return it unchanged. Raise KimisvcError if no line of a unit can hold it.

    The profile room names the key and the line; this is the last guard: a line
    break here would begin a directive of its own, run as root.
    """
    found = _UNPRINTABLE.search(text)
    if found:
        raise KimisvcError(
            "control-character",
            f"the control character U+{ord(found[0]):04X} cannot go into a unit",
        )
    return text


def _double_quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _refuse_name(name: str) -> None:
    if not _VARIABLE.fullmatch(name):
        raise KimisvcError("bad-variable", f"{name!r} is not the name of an environment variable")
