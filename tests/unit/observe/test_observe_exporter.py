"""The server: text or OpenMetrics as asked, TLS, clients that say nothing; addresses; instances."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from observe_support import healthy

from kimisvc.errors import HostError, KimisvcError
from kimisvc.observe import exporter
from kimisvc.observe.exporter import Address, Tls, registry, serve
from kimisvc.observe.fleet import Fleet
from kimisvc.observe.reference import reference
from kimisvc.records.units import Installation, UnitState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kimisvc.observe.exporter import Served

HERE = Address("127.0.0.1", 0)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    scene = healthy(tmp_path)
    server = serve(registry(lambda: (scene,), "1"), HERE)
    yield server
    server.close()


def got(port: int, context: ssl.SSLContext | None = None, **headers: str) -> tuple[str, str]:
    """Return the kind of the answer, and the answer."""
    line = (
        http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
        if context
        else http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    )
    try:
        line.request(
            "GET", "/metrics", headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        answer = line.getresponse()
        assert answer.status == 200
        return answer.headers["Content-Type"], answer.read().decode()
    finally:
        line.close()


def test_text_and_open_metrics_as_the_scraper_asks(served: Served) -> None:
    kind, text = got(served.port)
    assert kind.startswith("text/plain; version=")
    assert "# TYPE kimisvc_starts_total counter" in text
    assert "process_resident_memory_bytes" in text
    kind, text = got(served.port, Accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


def test_a_client_that_says_nothing_delays_nobody(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20):
        assert "kimisvc_up" in got(served.port)[1]


def test_a_silent_client_is_left_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "CLIENT_PATIENCE", 0.2)
    scene = healthy(tmp_path)
    server = serve(registry(lambda: (scene,), "1"), HERE)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as line:
            assert line.recv(1) == b""
    finally:
        server.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    folder = tmp_path_factory.mktemp("tls")
    tls = Tls(folder / "cert.pem", folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", str(tls.key), "-out", str(tls.certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return tls


def test_tls_and_a_client_that_never_shakes_hands(certificate: Tls, tmp_path: Path) -> None:
    scene = healthy(tmp_path)
    server = serve(registry(lambda: (scene,), "1"), HERE, certificate)
    try:
        context = ssl.create_default_context(cafile=str(certificate.certificate))
        with socket.create_connection(("127.0.0.1", server.port), timeout=20):
            assert "kimisvc_up" in got(server.port, context)[1]
    finally:
        server.close()


def test_a_scraper_needs_a_certificate_where_its_ca_is_named(
    certificate: Tls, tmp_path: Path
) -> None:
    scene = healthy(tmp_path)
    both = Tls(certificate.certificate, certificate.key, certificate.certificate)
    server = serve(registry(lambda: (scene,), "1"), HERE, both)
    try:
        context = ssl.create_default_context(cafile=str(certificate.certificate))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            got(server.port, context)
        context.load_cert_chain(certificate.certificate, certificate.key)
        assert "kimisvc_up" in got(server.port, context)[1]
    finally:
        server.close()


def test_a_port_that_is_taken_and_a_key_that_is_none(served: Served, tmp_path: Path) -> None:
    made = registry(tuple, "1")
    with pytest.raises(HostError) as error:
        serve(made, Address("127.0.0.1", served.port))
    assert str(served.port) in error.value.message
    nonsense = tmp_path / "key"
    nonsense.write_text("no key")
    with pytest.raises(HostError):
        serve(made, HERE, Tls(nonsense, nonsense))


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:9464", "127.0.0.1", 9464), ("[::1]:1", "::1", 1), ("box:65535", "box", 65535)],
)
def test_an_address(text: str, host: str, port: int) -> None:
    address = Address.of(text)
    assert (address.host, address.port, str(address)) == (host, port, text)


@pytest.mark.parametrize(
    "text", ["", "9464", ":9464", "host:", "host:x", "host:65536", "::1:9464", "host:-1", "host:٣"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(KimisvcError, match="no address"):
        Address.of(text)


# ------------------------------------------------------------------ instances


class Apart:
    """Plays the process that asks systemd; tells when it was asked."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.units: list[str] = []

    def states(self, units: Sequence[str], timeout: float) -> Mapping[str, UnitState]:
        del timeout
        self.units = list(units)
        self.asked.release()
        return {name: UnitState(name, "loaded", "active", "running") for name in units}

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def place(tmp_path: Path) -> Installation:
    return Installation(tmp_path / "k", tmp_path / "units", tmp_path / "state", tmp_path / "run")


def names(fleet: Fleet) -> list[str]:
    return [scene.instance for scene in fleet.scenes()]


def test_instances_come_and_go(place: Installation) -> None:
    fleet = Fleet(place, 60.0, Apart())  # type: ignore[arg-type]  # plays the door
    try:
        fleet.find()
        assert names(fleet) == []
        for name in ("two", "one"):
            (place.state / name / "generations").mkdir(parents=True)
        (place.state / "lost+found").mkdir()
        (place.state / "kimi-backup.tar.gz").touch()
        fleet.find()
        assert names(fleet) == ["one", "two"]
        (place.state / "one" / "generations").rmdir()
        fleet.find()
        assert names(fleet) == ["two"]
    finally:
        fleet.stop()


def test_a_state_folder_that_cannot_be_read_leaves_the_instances_that_are_known(
    place: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = Fleet(place, 60.0, Apart())  # type: ignore[arg-type]  # plays the door
    try:
        (place.state / "one" / "generations").mkdir(parents=True)
        fleet.find()
        place.state.rename(place.state.with_name("away"))
        place.state.write_text("no folder")
        fleet.find()
        fleet.find()
        assert names(fleet) == ["one"]
        told = [line for line in capsys.readouterr().err.splitlines() if "instances:" in line]
        assert len(told) == 1
    finally:
        fleet.stop()


def test_systemd_is_asked_once_for_all(place: Installation) -> None:
    for name in ("one", "two"):
        (place.state / name / "generations").mkdir(parents=True)
    apart = Apart()
    fleet = Fleet(place, 0.01, apart)  # type: ignore[arg-type]  # plays the door
    fleet.start()
    try:
        assert apart.asked.acquire(timeout=20)
        assert apart.asked.acquire(timeout=20)
        assert {"kimisvc-one.service", "kimisvc-two-gate.service", "kimisvc.target"} <= set(
            apart.units
        )
        assert len(apart.units) == len(set(apart.units))
        assert all(scene.units is not None for scene in fleet.scenes())
    finally:
        fleet.stop()


def test_the_reference_of_metrics_is_made_from_the_tables() -> None:
    path = Path(__file__).parents[3] / "docs" / "metrics.md"
    if os.environ.get("KIMISVC_REGENERATE_DOCS") == "yes" and "CI" not in os.environ:
        path.write_text(reference())
        pytest.fail("docs/metrics.md is written anew; run again without the variable")
    assert path.read_text() == reference()
