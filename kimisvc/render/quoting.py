"""systemd's quoting: each place in a unit has rules of its own. Pure.

Sources: systemd.syntax(7), "Quoting"; systemd.exec(5), Environment=;
systemd.service(5), "Command lines"; systemd.unit(5), "Specifiers". The
semantics were tried on systemd 252: `$` is literal in Environment= and must be
doubled in ExecStart=; `%` must be doubled in both.
"""

from __future__ import annotations

from kimisvc.errors import KimisvcError

_ESCAPES = {"\\": "\\\\", '"': '\\"'}
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@~^")
_PREFIXES = "@-:+!|"
"""What in front of a program's path changes how systemd runs it."""


def environment_assignment(name: str, value: str) -> str:
    """Given a variable, return what stands after `Environment=`: always in quotes."""
    _refuse_control(name, value)
    return _quoted(f"{name}={value}".replace("%", "%%"))


def exec_argument(token: str) -> str:
    """Given one argument, return it as a word of `ExecStart=`: quoted where it has to be."""
    _refuse_control(token)
    word = token.replace("%", "%%").replace("$", "$$")
    return word if token and set(token) <= _PLAIN else _quoted(word)


def exec_program(path: str) -> str:
    """Given the program of an `ExecStart=`, return it as its first word. It must be absolute."""
    if not path.startswith("/") or path[:1] in _PREFIXES:
        raise KimisvcError("bad-executable", f"{path!r} is not an absolute path")
    return exec_argument(path)


def path_value(path: str) -> str:
    """Given a path, return it as the value of a setting that takes one path, unquoted."""
    _refuse_control(path)
    return path.replace("%", "%%")


def environment_file_line(name: str, value: str) -> str:
    r"""Given a variable, return its line of an `EnvironmentFile=`.

    There `%` and `$NAME` are not expanded, and within double quotes a
    backslash escapes `"`, `\`, backtick and `$` (systemd.exec(5)).
    """
    _refuse_control(name, value)
    for special in '\\"`$':
        value = value.replace(special, f"\\{special}")
    return f'{name}="{value}"'


def _quoted(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(c, c) for c in text) + '"'


def _refuse_control(*texts: str) -> None:
    """The profile room refuses them first; a newline here would begin a directive of its own."""
    for text in texts:
        for character in text:
            # Cc: control characters; U+2028 and U+2029 end a line for some editors only.
            if (character < " " and character != "\t") or character in "\x7f\u0085\u2028\u2029":
                raise KimisvcError(
                    "control-character",
                    f"the control character {character!r} cannot go into a unit",
                )
