"""Options that several commands share, so that they are spelled and explained once."""

from __future__ import annotations

import contextlib
import functools
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kimisvc.cli.output import emit_json, error_json
from kimisvc.errors import KimisvcError
from kimisvc.records.names import INSTANCE, INSTANCE_RULE, LAST_GENERATION

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")


class Form(Enum):
    """How an answer is written."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def answering_json(text: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Given the help of --json, return what adds it to a command; programs get errors as JSON, too.

    An error keeps its words on stderr and its exit status.
    """
    option = click.option(
        "--json", "form", flag_value=Form.JSON, type=Form, default=Form.TEXT, help=text
    )

    def with_json(command: Callable[..., Result]) -> Callable[..., Result]:
        @functools.wraps(command)
        def answering(*args: Any, **values: Any) -> Result:
            try:
                return command(*args, **values)
            except (click.ClickException, click.Abort, BrokenPipeError):
                raise  # a wrong call, a question answered with no, a reader who has gone
            except Exception as error:  # told to the program that asked, and raised again
                if values["form"] is Form.JSON:
                    with contextlib.suppress(OSError):  # stdout may be what failed
                        emit_json(error_json(_told(error)))
                raise

        return option(answering)

    return with_json


def _told(error: Exception) -> KimisvcError:
    """The error as a program gets it; one that nobody expected has a code, too."""
    if isinstance(error, KimisvcError):
        return error
    return KimisvcError("unexpected", f"unexpected {type(error).__name__}: {error}")


def as_json(command: Callable[..., Result]) -> Callable[..., Result]:
    """Given a command, return it with --json, whose answer needs no more words."""
    return answering_json("Answer with JSON on stdout, for programs.")(command)


GENERATION = click.IntRange(1, LAST_GENERATION)
"""The number of a generation."""


class _Span(click.ParamType[float]):
    """A span of time, as a profile writes one."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Given what was typed, return it in seconds; usage error if it is no time."""
        from kimisvc.profile.quantities import parse_span

        try:
            return parse_span(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


SPAN = _Span()


class Instance(click.ParamType[str]):
    """The name of an instance, as a profile may give it: it becomes part of paths and unit names."""

    name = "instance"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Given what was typed, return it if it can be a name; usage error if not."""
        if not INSTANCE.fullmatch(str(value)):
            self.fail(f"{value!r} is no instance name: {INSTANCE_RULE}", param, ctx)
        return str(value)


instance = click.option(
    "--instance", metavar="NAME", default=None, type=Instance(),
    help="Which instance; needed only where the box has several.",
)  # fmt: skip
profile_argument = click.argument("profile", metavar="PROFILE")
