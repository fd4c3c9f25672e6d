"""One instance in the sandbox, served by the stand-in: profiles are written, kimisvc is called."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kimisvc.environment_file import Dialect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

STANDIN = Path(__file__).parents[1] / "fake_vllm" / "fake_vllm_server.py"
EXECUTABLE = "/opt/standin/bin/vllm"
MODEL = "/opt/standin/model"
POLL = 0.2
_ports = itertools.count(18100)


class Finished(Protocol):
    """What a command in the sandbox left."""

    returncode: int
    stdout: str
    stderr: str


class Sandbox(Protocol):
    """The container that the fixtures boot."""

    def run(self, *argv: str, check: bool = True, timeout: float = 60.0) -> Finished: ...
    def write(self, path: str, text: str) -> None: ...
    def read(self, path: str) -> str: ...
    def reboot(self) -> None: ...
    def crash(self) -> None: ...


def set_the_stage(sandbox: Sandbox) -> None:
    """Put the stand-in and something that looks like a model into the sandbox."""
    sandbox.run("mkdir", "-p", str(Path(EXECUTABLE).parent), MODEL, "/etc/kimisvc")
    sandbox.write(EXECUTABLE, STANDIN.read_text())
    sandbox.run("chmod", "755", EXECUTABLE)
    sandbox.write(f"{MODEL}/config.json", '{"architectures": ["LlamaForCausalLM"]}\n')
    sandbox.write(f"{MODEL}/model.safetensors", "\2\0\0\0\0\0\0\0{}")  # whole, without tensors


def dialect(sandbox: Sandbox) -> Dialect:
    """How the systemd of the sandbox reads an EnvironmentFile=: the host's own, as all of its userland."""
    version = int(sandbox.run("systemctl", "--version").stdout.split()[1])
    return Dialect.BEFORE_254 if version < 254 else Dialect.SINCE_254


@dataclass
class Stage:
    """One instance: writes its profiles, applies them, asks for its status."""

    sandbox: Sandbox
    instance: str
    port: int = field(default_factory=lambda: next(_ports))

    @property
    def service(self) -> str:
        return f"kimisvc-{self.instance}.service"

    def profile(
        self, name: str, script: Mapping[str, Any] | None = None, **sections: Mapping[str, Any]
    ) -> str:
        """Write a profile for the stand-in, playing `script`, with `sections` laid over."""
        tables: dict[str, dict[str, Any]] = {
            "service": {
                "instance": self.instance, "load_timeout": "20s", "restart_delay": "1s",
                "stop_timeout": "5s",
            },
            "vllm": {
                "executable": EXECUTABLE, "model": MODEL, "port": self.port,
                "served_model_name": "kimi",
            },
            "env": {f"FAKE_VLLM_{k.upper()}": _env(v) for k, v in (script or {}).items()},
            "probe": {
                "max_tokens": 64, "prompt_tokens": 16, "warmup": 1, "min_runs": 3, "max_runs": 5,
                "precision": 0.1, "timeout": "5s",
            },
            # Far under the 200 tok/s that the stand-in gives, and 0.3 s a run: a token that comes
            # 20 ms late on a busy machine is no slow server.
            "gate": {"decode_tok_s": ">60~100"},
            "golden": {"prompt": "What is the capital of France?", "expect": "Paris"},
        }  # fmt: skip
        for table, values in sections.items():
            tables.setdefault(table, {}).update(values)
        golden = tables.pop("golden")
        lines = ["schema = 1", f'name = "{name}"']
        for table, keys in tables.items():
            lines += ["", f"[{table}]", *(f"{k} = {json.dumps(v)}" for k, v in keys.items())]
        lines += ["", "[[golden]]", *(f"{k} = {json.dumps(v)}" for k, v in golden.items())]
        path = f"/etc/kimisvc/{self.instance}-{name}.toml"
        self.sandbox.write(path, "\n".join(lines) + "\n")
        return path

    def kimisvc(self, *argv: str, timeout: float = 120.0) -> Finished:
        """Call kimisvc in the sandbox and return what it left, whatever its status."""
        return self.sandbox.run("kimisvc", *argv, check=False, timeout=timeout)

    def apply(self, path: str, *options: str) -> tuple[int, dict[str, Any]]:
        """Apply a profile and return the exit status and the JSON answer."""
        done = self.kimisvc("apply", path, "--json", *options)
        assert done.stdout, f"apply said nothing on stdout; stderr:\n{done.stderr}"
        answer: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, answer

    def use(self, tokens: int) -> str:
        """Begin a request of so many tokens, as a user does; return where its answer goes once it runs."""
        answer = f"/root/{self.instance}-answer"
        body = json.dumps({"model": "kimi", "prompt": "a", "max_tokens": tokens, "stream": True})
        client = (
            f"curl -s -N -o {answer} -H 'Content-Type: application/json' -d '{body}'"
            f" http://127.0.0.1:{self.port}/v1/completions"
        )
        unit = f"user-{self.port}"
        self.sandbox.run("systemd-run", "--quiet", "--unit", unit, "sh", "-c", client)
        self.sandbox.run(
            "timeout", "20", "bash", "-c",
            f"until curl -s http://127.0.0.1:{self.port}/metrics |"
            " grep '^vllm:num_requests_running.* 1'; do sleep 0.1; done",
        )  # fmt: skip
        return answer

    def status(self) -> dict[str, Any]:
        """Return the status of the instance."""
        done = self.kimisvc("status", "--instance", self.instance, "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def history(self) -> dict[str, Any]:
        """Return the history of the instance."""
        done = self.kimisvc("history", "--instance", self.instance, "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def until(
        self, holds: Callable[[dict[str, Any]], bool], what: str, timeout: float = 60.0
    ) -> dict[str, Any]:
        """Look at the status until it holds; fail with what was last seen when it never does.

        An instance that the box does not know yet is about to be applied for the first time.
        """
        deadline = time.monotonic() + timeout
        while True:
            seen = self.status() if self.is_known() else {}
            if seen and holds(seen):
                return seen
            assert time.monotonic() < deadline, f"never {what}; last: {json.dumps(seen, indent=1)}"
            time.sleep(POLL)

    def is_known(self) -> bool:
        """Whether the box has the instance: whether anything was ever begun for it."""
        state = f"/var/lib/kimisvc/{self.instance}"
        return self.sandbox.run("test", "-d", state, check=False).returncode == 0

    def stop(self) -> None:
        """Stop the instance, so that the next test has the machine to itself."""
        for suffix in ("-rollback", "-gate", ""):
            unit = f"kimisvc-{self.instance}{suffix}.service"
            self.sandbox.run("systemctl", "disable", "--now", unit, check=False)
            self.sandbox.run("systemctl", "reset-failed", unit, check=False)

    def leave(self) -> None:
        """Stop the instance and take it off the box: others count instances and failed units."""
        self.stop()
        units = f"/etc/systemd/system/kimisvc-{self.instance}"
        self.sandbox.run(
            "sh", "-c",
            f"rm -rf {units}.service* {units}-* /var/lib/kimisvc/{self.instance}"
            f" /run/kimisvc/{self.instance}; systemctl daemon-reload;"
            f" systemctl reset-failed 'kimisvc-{self.instance}*'",
            check=False,
        )  # fmt: skip


def _env(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
