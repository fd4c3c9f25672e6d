"""What the container sees: the host's files below, an own layer above, some of it hidden."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from container.box import Box, mount

NOTICES = "/run/sandbox-notices"
UP_NOTICE = "X_SANDBOX_UP=1"
UP_UNIT = "sandbox-up.service"
# systemd's own READY=1 comes when no job is left, and a gate may be at work for minutes after boot.
# Without its default dependencies the unit may stand behind the target that pulls it in.
UP_TEXT = f"""[Unit]
Description=Tell the sandbox's keeper that multi-user.target is reached
DefaultDependencies=no
After=multi-user.target

[Service]
Type=oneshot
Environment=NOTIFY_SOCKET={NOTICES}
ExecStart=/usr/bin/systemd-notify {UP_NOTICE}
"""
KIMISVC = "/opt/kimisvc/demo/kimisvc/bin/kimisvc"
# Folders that start empty: the host's own services, jobs, state and journal stay below.
EMPTY = (
    "etc/systemd/system",
    "etc/rc2.d",
    "etc/rc3.d",
    "etc/rc4.d",
    "etc/rc5.d",
    "etc/rcS.d",
    "var/lib/kimisvc",
    "var/lib/kimisvc-sandbox",
    "var/log/journal",
    "var/lib/systemd",
    "mnt",
    "media",
)
# Units that /usr pulls in at boot and that have no business in a container made for tests.
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "console-getty.service",
    "cron.service",
    "dbus-org.freedesktop.login1.service",
    "dev-hugepages.mount",
    "getty.target",
    "kmod-static-nodes.service",
    "modprobe@.service",
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
    "systemd-binfmt.service",
    "systemd-firstboot.service",
    "systemd-hwdb-update.service",
    "systemd-logind.service",
    "systemd-modules-load.service",
    "systemd-networkd.service",
    "systemd-random-seed.service",
    "systemd-resolved.service",
    "systemd-sysctl.service",
    "systemd-timesyncd.service",
    "systemd-udevd.service",
    "systemd-udev-trigger.service",
    "systemd-update-utmp.service",
    "systemd-update-utmp-runlevel.service",
    "var-lib-machines.mount",
)
# What systemd-nspawn itself would write to is covered in the keeper's own mount namespace.
COVERED = ("/tmp", "/run", "/var/tmp")  # noqa: S108  names of mount points, no file is made there
# Where the userland may lie on file systems of its own; each of these gets an overlay of its own.
SYSTEM_TREES = ("/etc", "/opt", "/usr", "/var")
DISK_TYPES = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "overlay")


def layers(box: Box) -> dict[Path, Path]:
    """Return file system to overlay layer: `/`, and system trees on disks of their own."""
    found = {Path("/")}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        point = left.split()[4]
        inside = any(point == tree or point.startswith(f"{tree}/") for tree in SYSTEM_TREES)
        if inside and right.split()[0] in DISK_TYPES and Path(point).is_dir():
            found.add(Path(point))
    return {lower: box.home / f"layer-{n}" for n, lower in enumerate(sorted(found))}


def draft(stack: dict[Path, Path], inside: str) -> Path:
    """Make the folder `inside` in its upper layer as the host's is (owner, mode); return it."""
    below = Path("/", inside)
    lower = max((low for low in stack if below.is_relative_to(low)), key=lambda low: len(low.parts))
    target = stack[lower] / "upper"
    for part in below.relative_to(lower).parts:
        target, lower = target / part, lower / part
        if not target.is_dir():
            target.mkdir(mode=0o755)
            if lower.is_dir():
                shutil.copystat(lower, target)
                known = lower.stat()
                os.chown(target, known.st_uid, known.st_gid)
    return target


def furnish(box: Box, stack: dict[Path, Path]) -> None:
    """Write what differs from the host into the upper layers, before anything is mounted."""
    for lower, layer in stack.items():
        (layer / "work").mkdir(parents=True)
        (layer / "upper").mkdir(mode=0o755)
        (layer / "upper").chmod(lower.stat().st_mode & 0o7777)
    for folder in EMPTY:
        # overlayfs: an opaque folder hides the one below; no need to list or delete what is there.
        os.setxattr(draft(stack, folder), "trusted.overlay.opaque", b"y")
    units = draft(stack, "etc/systemd/system")
    for unit in MASKED:
        (units / unit).symlink_to("/dev/null")
    (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
    (units / UP_UNIT).write_text(UP_TEXT, encoding="ascii")
    (units / "multi-user.target.wants").mkdir()
    (units / "multi-user.target.wants" / UP_UNIT).symlink_to(f"../{UP_UNIT}")
    etc = draft(stack, "etc")
    (etc / "machine-id").write_text(f"{uuid.uuid4().hex}\n", encoding="ascii")
    (etc / "hostname").write_text(f"{box.name}\n", encoding="ascii")
    (etc / "hosts").write_text(f"127.0.0.1 localhost {box.name}\n::1 localhost\n", encoding="ascii")
    (etc / "fstab").write_text("", encoding="ascii")
    # systemd.unit(5), ConditionNeedsUpdate=: newer than /usr means ldconfig, hwdb and others rest.
    (etc / ".updated").touch()
    (draft(stack, "var") / ".updated").touch()
    (draft(stack, "usr/local/bin") / "kimisvc").symlink_to(KIMISVC)


def build_root(box: Box, stack: dict[Path, Path], binds: list[tuple[Path, str]]) -> list[str]:
    """In the keeper's mount namespace: mount all; return systemd-nspawn's options for the rest."""
    mount("--make-rprivate", "/")
    mount("-t", "proc", "proc", "/proc")
    mount("-t", "tmpfs", "tmpfs", "/sys/fs/cgroup")  # the kernel refuses cgroup2 right on cgroup2
    mount("-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")
    options = [f"--bind={box.home}/root-home:/root", "--tmpfs=/home:mode=755"]
    options.append(f"--bind={box.notices}:{NOTICES}")
    options.append("--tmpfs=/var/tmp:mode=1777")
    for number, (source, target) in enumerate(binds):
        point = box.home / "binds" / str(number)
        if source.is_dir():
            point.mkdir()
        else:
            point.touch()
        mount("--rbind", source, point)  # before /tmp and /run, where it may lie, are covered
        options.append(f"--bind-ro={point}:{target}")
    for lower, layer in stack.items():
        paths = f"lowerdir={lower},upperdir={layer}/upper,workdir={layer}/work"
        mount("-t", "overlay", "overlay", "-o", paths, box.home / "root" / lower.relative_to("/"))
    for folder in COVERED:
        mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", folder)
    return options
