"""Options that several commands share, so that they are spelled and explained once."""

from __future__ import annotations

from enum import Enum

import click


class Form(Enum):
    """How an answer is written."""

    TEXT = "text"
    JSON = "json"


Decorator = "Callable[[Callable[..., Any]], Callable[..., Any]]"

as_json = click.option(
    "--json", "form", flag_value=Form.JSON, type=Form, default=Form.TEXT,
    help="Answer with JSON on stdout, for programs.",
)  # fmt: skip
instance = click.option(
    "--instance", metavar="NAME", default=None,
    help="Which instance; needed only where the box has several.",
)  # fmt: skip
profile_argument = click.argument("profile", metavar="PROFILE")
