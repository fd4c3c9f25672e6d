"""The page of metrics: scenes and the table of families to what prometheus-client prints.

A registry of our own, so that nothing is on the page but what the table says
and the figures of this process. prometheus-client serves it, as text or as
OpenMetrics, whichever the scraper asks for.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from kimisvc.errors import HostError, KimisvcError
from kimisvc.observe.families import FAMILIES, UP, Kind
from kimisvc.observe.troubles import Troubles, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from kimisvc.observe.families import Family
    from kimisvc.observe.snapshots import Scene

    Samples = Sequence[tuple[tuple[str, ...], float]]

CLIENT_PATIENCE = 10.0
"""A scraper that connects and says nothing keeps its thread so long (s)."""

METRIC = {Kind.GAUGE: GaugeMetricFamily, Kind.COUNTER: CounterMetricFamily}


class Page(Collector):
    """What prometheus-client asks for at each scrape."""

    def __init__(self, scenes: Callable[[], Sequence[Scene]], version: str) -> None:
        """Given what tells the scenes of now, and the version of kimisvc, hold them."""
        self._scenes = scenes
        self._version = version
        self._troubles = Troubles()

    def describe(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """Return all metrics without samples, so that registering asks nobody."""
        return [METRIC[one.kind](one.name, one.help) for one in FAMILIES]

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """Return all metrics with the samples of now; one without samples is left out."""
        info = GaugeMetricFamily(
            "kimisvc_exporter_info", "The version of this exporter.", labels=["version"]
        )
        info.add_metric([self._version], 1.0)
        yield info
        told = {scene.instance: self._told(scene) for scene in self._scenes()}
        for family in FAMILIES:
            metric = METRIC[family.kind](
                family.name, family.help, labels=["instance", *family.labels]
            )
            for instance, samples in told.items():
                for labels, value in samples[family.name]:
                    metric.add_metric([instance, *labels], value)
            if metric.samples:
                yield metric

    def _told(self, scene: Scene) -> Mapping[str, Samples]:
        """What is to be said of one instance, by metric; where one cannot be told, it is not up.

        Whatever is wrong with it, the page of the others is not to suffer.
        """
        told: dict[str, Samples] = {}
        trouble = ""
        for family in FAMILIES:
            try:
                told[family.name] = _samples(family, scene)
            except Exception as error:  # noqa: BLE001 - as above
                told[family.name] = ()
                trouble = f"{family.name}: {words_of(error)}"
        if trouble:
            told[UP] = (((), 0.0),)
        self._troubles.say(f"{scene.instance}: page", trouble)
        return told


def _samples(family: Family, scene: Scene) -> Samples:
    """The samples in the types that the page can be written of: what is wrong is to fail here."""
    return [
        (tuple(_printable(label) for label in labels), float(value))
        for labels, value in family.samples(scene)
    ]


def _printable(label: str) -> str:
    """A text that is UTF-8, as every page is; half a surrogate pair is none."""
    return str(label).encode(errors="backslashreplace").decode()


def registry(scenes: Callable[[], Sequence[Scene]], version: str) -> CollectorRegistry:
    """Given what tells the scenes of now, return a registry with them and this process's figures."""
    made = CollectorRegistry(auto_describe=False)
    made.register(Page(scenes, version))
    ProcessCollector(registry=made)
    return made


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of a server that speaks TLS; with `client_ca`, scrapers need a certificate, too."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class Address:
    """Where the exporter listens."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> Address:
        """Given HOST:PORT ([HOST]:PORT for IPv6), return the address. Raise KimisvcError."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
        plain = port.isascii() and port.isdecimal() and 0 <= int(port) < 1 << 16
        if not colon or not host or not plain or (":" in host and not text.startswith("[")):
            raise KimisvcError(
                "bad-address",
                f"{text!r} is no address to listen at",
                hint="HOST:PORT, as in 127.0.0.1:9464 or [::1]:9464",
            )
        return cls(host, int(port))

    def __str__(self) -> str:
        """HOST:PORT again."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Served:
    """A server at work: the port it has, and how to end it."""

    port: int
    close: Callable[[], None]


def serve(made: CollectorRegistry, address: Address, tls: Tls | None = None) -> Served:
    """Given a registry and where to listen, serve it in threads. Raise HostError if that fails."""
    try:
        _check(tls)
        server, thread = start_http_server(
            address.port,
            address.host,
            made,
            certfile=str(tls.certificate) if tls else None,
            keyfile=str(tls.key) if tls else None,
            client_cafile=str(tls.client_ca) if tls and tls.client_ca else None,
            client_auth_required=tls is not None and tls.client_ca is not None,
        )
    except OSError as error:  # ssl's own errors are some, too
        words = error.strerror or str(error)
        raise HostError(
            "cannot-listen",
            f"cannot serve at {address}: {words}",
            hint="is the port taken, or a file of TLS missing? (--address, --tls-cert, --tls-key)",
        ) from error
    # What the library leaves open: a client that says nothing, in its handshake or after it,
    # would hold a thread for good, or with TLS keep all others from being accepted.
    server.RequestHandlerClass.timeout = CLIENT_PATIENCE  # type: ignore[attr-defined]
    if tls is not None:
        server.socket.do_handshake_on_connect = False  # type: ignore[attr-defined]

    def close() -> None:
        server.shutdown()
        thread.join()
        server.server_close()

    return Served(int(server.server_port), close)


def _check(tls: Tls | None) -> None:
    """Raise OSError before anything is bound: the library would leave its socket behind."""
    if tls is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    if tls.client_ca is not None:
        context.load_verify_locations(tls.client_ca)
