#!/usr/bin/env bash
# A real systemd on a host that has none: PID 1 of namespaces of its own, over an overlay of the
# host's files. What is written in it is in memory and goes with it; the host's own root, /tmp and
# units stay as they are. Needs root, dpkg-deb, and a kernel with overlayfs and cgroup2.
#
#   boot.sh prepare FIRST           make the root: FIRST holds *.deb, pystemd-*.tar.gz, wheels/, model.tar.xz
#   boot.sh run SITE DRIVER...      boot, run DRIVER (arguments of gpu_driver.py) in it, end with it
#
# Results lie in $BOX/root/results, what the driver prints in $BOX/root/results/driver.out.
set -Eeuo pipefail
BOX=${BOX:-/tmp/kimisvc-gpu}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$BOX/root

# What must not touch the devices, the clock or the settings of the kernel, which are the host's.
MASKED=(
    dev-hugepages.mount dev-mqueue.mount kmod-static-nodes.service modprobe@.service
    sys-fs-fuse-connections.mount sys-kernel-config.mount sys-kernel-debug.mount
    sys-kernel-tracing.mount systemd-binfmt.service systemd-firstboot.service
    systemd-hwdb-update.service systemd-modules-load.service systemd-random-seed.service
    systemd-remount-fs.service systemd-sysctl.service systemd-timesyncd.service
    systemd-tmpfiles-setup-dev.service systemd-udevd.service systemd-udev-trigger.service
    systemd-update-utmp.service proc-sys-fs-binfmt_misc.automount
)

# within COMMAND...: run it in the root, with devices and processes to be seen.
within() {
    # shellcheck disable=SC2016 # expanded by the inner shell
    unshare --mount bash -ec 'mount --make-rprivate /; mount --rbind /dev "$0/dev"
        mount -t proc proc "$0/proc"; exec chroot "$0" "$@"' "$root" "$@"
}

prepare() {
    local first deb unit
    first=$(realpath "$1")
    mkdir -p "$BOX"
    mount -t tmpfs -o "size=${BOX_SIZE:-40g}" tmpfs "$BOX"
    mkdir -p "$BOX"/{upper,work,root}
    mount -t overlay overlay -o "lowerdir=/,upperdir=$BOX/upper,workdir=$BOX/work" "$root"
    # Only what the host lacks: its own libraries stay.
    for deb in "$first"/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -C "$root" -x --keep-directory-symlink --skip-old-files
    done
    grep -q ^messagebus: "$root/etc/passwd" ||
        echo 'messagebus:x:499:499::/nonexistent:/usr/sbin/nologin' >>"$root/etc/passwd"
    grep -q ^messagebus: "$root/etc/group" || echo 'messagebus:x:499:' >>"$root/etc/group"
    [[ -s $root/etc/machine-id ]] || tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
    for unit in "${MASKED[@]}"; do ln -sfn /dev/null "$root/etc/systemd/system/$unit"; done
    mkdir -p "$root"/opt/{site,first,gpu,profiles} "$root/srv/model" "$root/results"
    tar -C "$root/srv/model" -xJf "$first/model.tar.xz" 2>/dev/null ||
        python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' \
            "$first/model.tar.xz" "$root/srv/model"
    chmod -R a+rX "$root/srv/model"
    cp -r "$first/wheels" "$first"/pystemd-*.tar.gz "$root/opt/first/"
    cp "$here"/*.py "$here"/*.sh "$root/opt/gpu/"
    cp -r "$here/places" "$root/opt/gpu/"
    cp "$here"/../../profiles/*.toml "$root/opt/profiles/"
    # Before journald starts: it gives its files to a group.
    within /bin/systemd-sysusers || true
    within python3 -m pip install -q --no-index --no-build-isolation --no-deps \
        --target /opt/pystemd "/opt/first/$(basename "$first"/pystemd-*.tar.gz)"
    within bash /opt/gpu/install.sh /opt/first/wheels /opt/site /opt/pystemd
}

run() {
    local site driver
    site=$(realpath "$1")
    shift
    printf -v driver ' %q' "$@"
    # A shell reads its words back, systemd has quotes of its own.
    printf 'exec python3 /opt/gpu/gpu_driver.py --results /results --shipped /opt/profiles' \
        >"$root/opt/gpu/driver"
    printf ' --kimisvc /opt/kimisvc/bin/kimisvc%s\n' "$driver" >>"$root/opt/gpu/driver"
    cat >"$root/etc/systemd/system/driver.service" <<UNIT
[Unit]
After=basic.target dbus.service
Wants=dbus.service

[Service]
Type=oneshot
TimeoutStartSec=infinity
StandardOutput=append:/results/driver.out
StandardError=inherit
Environment=PATH=/opt/kimisvc/bin:/opt/vllm/bin:$PATH:/usr/local/nvidia/bin
ExecStartPre=-/bin/bash -c 'echo /usr/local/nvidia/lib64 >/etc/ld.so.conf.d/kimisvc-gpu.conf; /sbin/ldconfig'
ExecStart=/bin/bash /opt/gpu/driver
# A normal end of the container: systemd's own exit.
ExecStopPost=-/bin/touch /results/finished
ExecStopPost=/bin/kill -s RTMIN+14 1
UNIT
    rm -f "$root/results/finished"
    unshare --pid --fork --mount --cgroup --uts --ipc bash "${BASH_SOURCE[0]}" inside "$site"
}

# In the namespaces: lay out what systemd expects, and become it.
inside() {
    local folder
    mount --make-rprivate /
    for folder in sys dev; do mount --rbind "/$folder" "$root/$folder"; done
    # The driver's libraries are a mount of their own.
    [[ ! -d /usr/local/nvidia ]] || mount --rbind /usr/local/nvidia "$root/usr/local/nvidia"
    mount --bind "$1" "$root/opt/site"
    mount -t proc proc "$root/proc"
    for folder in tmp run var/tmp; do
        mkdir -p "$root/$folder"
        mount -t tmpfs -o mode=1777 tmpfs "$root/$folder"
    done
    umount -l "$root/sys/fs/cgroup" || true
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    export container=kimisvc-gpu
    exec chroot "$root" /lib/systemd/systemd --system --unit=driver.service --log-target=console \
        --show-status=0
}

case ${1:-} in
prepare | run | inside) "$@" ;;
*) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 2 ;;
esac
