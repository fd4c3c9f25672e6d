"""[args] and [env] by themselves: what would leave no server to ask, and how a number is written."""

from __future__ import annotations

import pytest

from kimisvc.profile.options import option_findings, variable_findings


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("headless", True),
        ("grpc", True),
        ("api-server-count", 0),
        ("api_server_count", "0"),
        ("api-server-count", -1),
        ("tokens-only", True),
        ("skip_tokenizer_init", True),
        ("runner", "pooling"),
        ("runner", "draft"),
        ("convert", "embed"),
        ("convert", "classify"),
    ],
)
def test_what_leaves_no_server_to_ask_is_refused(option: str, value: object) -> None:
    (finding,) = option_findings({option: value})
    assert finding.path == ("args", option)
    assert "is refused: kimisvc asks the HTTP API of vLLM" in finding.message
    assert "eave it out" in finding.message


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("headless", False),
        ("tokens-only", False),
        ("api-server-count", 1),
        ("api-server-count", "2"),
        ("runner", "generate"),
        ("runner", "auto"),
        ("convert", "none"),
    ],
)
def test_what_leaves_one_is_not(option: str, value: object) -> None:
    assert list(option_findings({option: value})) == []


@pytest.mark.parametrize(("value", "write"), [(16.0, "16"), (0.5, "0.5"), (-2.0, "-2")])
def test_a_number_is_to_be_written_as_a_string_that_is_read(value: float, write: str) -> None:
    (finding,) = variable_findings({"NCCL_MIN_CTAS": value})
    assert finding.message.endswith(f'Write NCCL_MIN_CTAS = "{write}"')
