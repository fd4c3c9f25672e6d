"""exporter: serve the metrics of all instances to Prometheus; install the unit that does so."""

from __future__ import annotations

import signal
import threading
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kimisvc import __version__
from kimisvc.cli import doors, options
from kimisvc.cli.options import Form
from kimisvc.cli.output import emit_json
from kimisvc.errors import KimisvcError

if TYPE_CHECKING:
    from kimisvc.observe.exporter import Address

ADDRESS = "127.0.0.1:9464"
"""Ports 9100 to 9999 are all given out to exporters; OpenTelemetry's own metrics have this one."""
READABLE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Do(Enum):
    """What the command is to do."""

    SERVE = "serve"
    INSTALL = "install"
    UNINSTALL = "uninstall"


@click.command()
@click.option(
    "--address", default=ADDRESS, show_default=True, metavar="HOST:PORT", help="Where to listen."
)
@click.option(
    "--interval", default=5.0, show_default=True, metavar="SECONDS",
    type=click.FloatRange(1.0, 60.0), help="How often sources are read.",
)  # fmt: skip
@click.option("--tls-cert", type=READABLE, help="Serve with TLS: the certificate.")
@click.option("--tls-key", type=READABLE, help="Serve with TLS: its key.")
@click.option("--client-ca", type=READABLE, help="Scrapers need a certificate signed by this CA.")
@click.option(
    "--install", "do", flag_value=Do.INSTALL, type=Do, default=Do.SERVE,
    help="Write, enable and start kimisvc-exporter.service, with the other options given.",
)  # fmt: skip
@click.option(
    "--uninstall", "do", flag_value=Do.UNINSTALL, type=Do, help="Stop and remove that service."
)
@options.as_json
def exporter(
    address: str, interval: float, tls_cert: Path | None, tls_key: Path | None,
    client_ca: Path | None, do: Do, form: Form,
) -> int:  # fmt: skip
    """Serve the metrics of all instances for Prometheus, until ended.

    A scrape gets what was last read and never waits for systemd, vLLM or a
    disk. Without TLS anybody who reaches the address can read it.
    """
    from kimisvc.observe.exporter import Address

    where = Address.of(address)
    if (tls_cert is None) != (tls_key is None) or (client_ca and not tls_cert):
        raise click.UsageError("--tls-cert and --tls-key go together; --client-ca needs both")
    files = (("--tls-cert", tls_cert), ("--tls-key", tls_key), ("--client-ca", client_ca))
    if do is Do.SERVE:
        if form is Form.JSON:
            raise KimisvcError("no-json", "an exporter that serves answers scrapers only")
        return _serve(where, interval, tls_cert, tls_key, client_ca)
    if do is Do.UNINSTALL:
        return _uninstall(form)
    words = ["--address", str(where), "--interval", f"{interval:g}"]
    words += [word for name, path in files if path for word in (name, str(path.absolute()))]
    return _install(where, words, form)


def _serve(
    where: Address, interval: float, cert: Path | None, key: Path | None, client_ca: Path | None
) -> int:
    from kimisvc.host import notify
    from kimisvc.observe.exporter import Tls, registry, serve
    from kimisvc.observe.fleet import Fleet

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    fleet = Fleet(doors.installation(), interval)
    fleet.start()
    tls = Tls(cert, key, client_ca) if cert and key else None
    try:
        served = serve(registry(fleet.scenes, __version__), where, tls)
        scheme = "https" if tls else "http"
        click.echo(f"kimisvc: metrics at {scheme}://{where}/metrics", err=True)
        notify.ready()
        ended.wait()
        served.close()
    finally:
        fleet.stop()
    return 0


def _install(where: Address, words: list[str], form: Form) -> int:
    doors.need_root("exporter --install")
    from kimisvc.deploy.exporter_service import install
    from kimisvc.host.systemd import Systemd
    from kimisvc.render.exporter_unit import TEMPLATE, render_exporter

    place = doors.installation()
    template = doors.templates().get(TEMPLATE)
    if template is None:
        raise KimisvcError("no-template", f"{TEMPLATE} is not part of this installation")
    unit = render_exporter(template, place, words)
    with Systemd() as systemd:
        install(unit, place, systemd)
    _say(form, f"{unit.name} runs; Prometheus scrapes {where}", unit.name, address=str(where))
    return 0


def _uninstall(form: Form) -> int:
    doors.need_root("exporter --uninstall")
    from kimisvc.deploy.exporter_service import uninstall
    from kimisvc.host.systemd import Systemd
    from kimisvc.render.exporter_unit import NAME

    with Systemd() as systemd:
        uninstall(doors.installation(), systemd)
    _say(form, f"there is no {NAME} any more; drop-ins, if there are some, are left", NAME)
    return 0


def _say(form: Form, words: str, unit: str, **more: str) -> None:
    emit_json({"unit": unit, **more}) if form is Form.JSON else click.echo(words)
