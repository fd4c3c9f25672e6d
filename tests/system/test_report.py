"""history and report on a real systemd: what apply, gate and rollback left is what is told."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stage import Finished, Stage

pytestmark = pytest.mark.system
WRONG_ANSWER = {"default_answer": "<script>I like trains.</script>"}


def kimisvc(stage: Stage, *argv: str) -> Finished:
    return stage.kimisvc(*argv, "--instance", stage.instance)


def test_the_history_of_a_good_and_a_bad_apply(stage: Stage) -> None:
    assert stage.apply(stage.profile("good"))[0] == 0
    assert stage.apply(stage.profile("bad", WRONG_ANSWER))[0] == 4

    told = json.loads(kimisvc(stage, "history", "--json").stdout)
    assert [v["verdict"] for v in told["verdicts"]] == ["PASS", "FAIL", "PASS"]
    kernel = stage.sandbox.run("uname", "-r").stdout.strip()
    for start in told["starts"]:
        facts = start["facts"]
        assert facts["kernel"] == kernel
        assert (facts["prompt_tokens"], facts["max_tokens"]) == (16, 64)
        assert facts["systemd"]
        assert facts["vllm"]
        assert facts["kimisvc"]
    sequences = [row["sequence"] for kind in ("applies", "starts", "verdicts", "rollbacks")
                 for row in told[kind]]  # fmt: skip
    assert len(sequences) == len(set(sequences))

    text = kimisvc(stage, "history", "--csv", "--generation", "2").stdout
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["what"] for row in rows] == ["apply", "start", "FAIL", "rollback"]

    for line in (kimisvc(stage, "report").stdout, kimisvc(stage, "history").stdout):
        assert "good" in line
        assert "bad" in line
    assert (
        kimisvc(stage, "report", "-o", "/root/report.html").stdout == "/root/report.html: written\n"
    )
    page = stage.sandbox.read("/root/report.html")
    assert page.count("<svg") >= 5
    assert "<script" not in page
    assert "nothing to compare yet" in page  # a wrong answer ends a gate before it measures


def test_pruning_and_reading_as_nobody(stage: Stage) -> None:
    assert stage.apply(stage.profile("good"))[0] == 0
    pruned = kimisvc(stage, "history", "prune", "--keep", "90d")
    assert pruned.stdout == f"{stage.instance}: 0 canaries and 0 samples taken out\n"
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    seen = stage.sandbox.run(*nobody, "kimisvc", "history", "--instance", stage.instance)
    assert "PASS" in seen.stdout
    refused = stage.sandbox.run(
        *nobody, "kimisvc", "history", "prune", "--keep", "1d", "--instance", stage.instance,
        check=False,
    )  # fmt: skip
    assert refused.returncode == 1
    assert "needs root" in refused.stderr
    no_place = kimisvc(stage, "report", "-o", "/no/such/folder/report.html")
    assert no_place.returncode == 1
    assert "/no/such/folder" in no_place.stderr
