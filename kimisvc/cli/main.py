"""`kimisvc`: the group of commands, and the one place where errors become output and a status.

Commands are loaded when they are called, so that `--version` and help stay
quick on a busy box.
"""

from __future__ import annotations

import importlib
import keyword
import os
import sys
from typing import Any

import click

from kimisvc import __version__
from kimisvc.errors import (
    ExitStatus,
    KimisvcError,
    PreflightRefusedError,
    ProfileRefusedError,
)

COMMANDS = {
    "check": ("profile", "Check a profile: every problem at once, nothing touched."),
    "explain": ("explain", "Every setting of a profile: from where, what it does, its risk."),
    "render": ("profile", "Print the systemd units a profile becomes."),
    "profiles": ("profiles", "List profiles: which fit this host, and how fast each was here."),
    "diff": ("profile", "Show what apply would change on this box."),
    "apply": ("apply", "Make a profile the running service: install, start, prove, or roll back."),
    "tune": ("tune", "Search for the profile that meets a target, or for the fastest."),
    "status": ("status", "What runs now, how fast it was, and whether it is what was applied."),
    "probe": ("probe", "Measure the running service: single-stream decode throughput, TTFT."),
    "bench": ("bench", "Throughput of the running service at several concurrencies."),
    "rollback": ("rollback", "Go back to the last accepted generation, or to any other."),
    "history": (
        "history",
        "What was applied, started, decided, rolled back, measured; newest last.",
    ),
    "compare": ("compare", "Whether two profiles differ in speed, by the starts in history."),
    "report": ("report", "How speed, loads and gates went: in short, or as one page of HTML."),
    "doctor": ("doctor", "Look at this host: would a profile run here, and if not, why."),
    "exporter": ("exporter", "Serve metrics of all instances to Prometheus, or install that."),
    "import": ("adopt", "Make a profile of a `vllm serve` command line, or of a unit."),
    "schema": ("adopt", "Print the JSON Schema of a profile, for editors."),
    "gate": ("unit", "Prove the start that runs (called by the gate unit)."),
    "canary": ("unit", "Probe the idle service shortly (called by the canary unit)."),
    "settle": ("unit", "Keep what gate or canary found (called by their units)."),
}
"""Each command, the module that holds it, and the line of help the overview shows."""
FOR_UNITS = ("gate", "canary", "settle")
DEBUG = "KIMISVC_DEBUG"
UMASK = 0o022
"""Units read what commands write, as other users; sudo hands on whatever umask its caller had."""


class Commands(click.Group):
    """The group; a command's module is imported when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands an operator may call, in the order of the work."""
        del ctx
        return [name for name in COMMANDS if name not in FOR_UNITS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Given a command's name, return it; None if there is no such command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"kimisvc.cli.{COMMANDS[cmd_name][0]}")
        reserved = keyword.iskeyword(cmd_name)  # `import` is defined as `import_`
        command: click.Command = getattr(module, f"{cmd_name}_" if reserved else cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview from the table, without importing every command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Given arguments, find the command; say the nearest name for a mistyped one."""
        import difflib

        name = args[0] if args else ""
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        if name not in COMMANDS and not name.startswith("-") and near:
            ctx.fail(f"No such command {name!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 done, 1 failed, 2 usage, 3 profile refused, 4 rolled back and proven,"
    " 5 failed and nothing restored, 6 inconclusive, 7 preflight refused, 75 locked.",
)
@click.version_option(__version__, prog_name="kimisvc", message="%(prog)s %(version)s")
def kimisvc() -> None:
    """Turn a TOML tuning profile into a proven vLLM service on this box.

    A profile is checked, rendered to systemd units, installed, started, asked
    golden questions and measured; one that fails is rolled back to the last
    one that passed.

    \b
      kimisvc check profiles/ll_ring.toml       is the profile sound?
      kimisvc apply profiles/ll_ring.toml       make it the service
      kimisvc status --follow                   watch a load
    """  # noqa: D301 - \b is click's mark for a paragraph that is not to be wrapped


def run(arguments: list[str] | None = None) -> None:
    """Given command line arguments (default: the process's own), run and exit with a status."""
    status = main(arguments)
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError):
        sys.stderr = None  # it is full or gone: what was done is done, and the status says it
    sys.exit(status)


def main(  # noqa: PLR0911 - one way out for each kind of error
    arguments: list[str] | None = None,
) -> int:
    """Given command line arguments, run the command and return its exit status."""
    os.umask(UMASK)
    try:
        result: Any = kimisvc.main(arguments, prog_name="kimisvc", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a full disk behind it can still be told
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return _interrupted()
    except KimisvcError as error:
        _show(error)
        return int(error.exit_status)
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        # The reader of our output has gone (head, a closed terminal). Keep the
        # interpreter from complaining once more when it flushes at exit.
        sys.stdout = None
        return int(ExitStatus.FAILED)
    except OSError as error:
        sys.stdout = None  # it may be what failed, and would fail again at exit
        name = f"{error.filename}: " if error.filename else ""
        _say(f"kimisvc: {name}{error.strerror or error}")
        if isinstance(error, FileNotFoundError) and not name:  # of getcwd(2), as nothing else is
            _say("  hint: the folder you are in was removed; cd to one that is there")
        return int(ExitStatus.FAILED)
    except Exception as error:  # noqa: BLE001 - the last resort: an operator never sees a traceback
        return _broke(error)
    return result if isinstance(result, int) else int(ExitStatus.DONE)


def _show(error: KimisvcError) -> None:
    from kimisvc.cli.output import hushed, problem_lines

    if isinstance(error, ProfileRefusedError):
        lines = problem_lines(error.problems)
    elif isinstance(error, PreflightRefusedError):
        lines = [f"{hushed(error.message)}:", *problem_lines(error.reasons)]
    else:
        lines = [hushed(error.message)]
    _write("\n".join(["kimisvc: " + lines[0], *lines[1:]]))
    if error.hint:
        _say(f"  hint: {error.hint}")


def _say(line: str) -> None:
    """Write a line that may hold words that are not ours to stderr, without secrets."""
    from kimisvc.cli.output import hushed

    _write(hushed(line))


def _write(line: str) -> None:
    """Write a line to stderr; a stderr that is gone or full changes no exit status."""
    try:
        click.echo(line, err=True)
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError):
        sys.stderr = None


def _interrupted() -> int:
    _say("\nkimisvc: interrupted")
    return int(ExitStatus.INTERRUPTED)


def _broke(error: Exception) -> int:
    """A fault of ours, or of the system in a place where we did not expect one."""
    if DEBUG in os.environ:
        import traceback

        _say(traceback.format_exc())
    _say(f"kimisvc: unexpected {type(error).__name__}: {error}")
    _say(f"  hint: set {DEBUG}=1 to see where, and please report it")
    return int(ExitStatus.FAILED)
