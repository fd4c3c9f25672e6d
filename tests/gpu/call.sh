#!/usr/bin/env bash
# What each call to a lent GPU host runs: a host that forgets everything soon after a call, that
# takes so many bytes a call, and lets a call run for ten minutes. What goes on between calls runs
# in a session of its own.
#
#   call.sh take N                 keep slice N; with slice 0, begin to set the box up meanwhile
#   call.sh go SECONDS DRIVER...   all slices are there: unpack, boot, run DRIVER; see `wait`
#   call.sh wait SECONDS           until the driver is through or the time is over; collect results
#
# Slices are looked for in .gpu-payload/N below the current folder; results go to $OUT.
set -Eeuo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=${GPU_HOME:-/var/lib/kimisvc-gpu}
export BOX=${BOX:-/tmp/kimisvc-gpu}
results=$BOX/root/results
mkdir -p "$home/slices"

say() { printf '%(%T)T +%ss %s\n' -1 "$SECONDS" "$*"; }

take() {
    cp ".gpu-payload/$1"/* "$home/slices/"
    say "slice $1 kept: $(du -sh "$home/slices" | cut -f1)"
    [[ $1 != 0 ]] || begin
}

# Off the call's own process group, or it would be ended with the call.
begin() {
    mkdir -p "$home/first"
    setsid bash "${BASH_SOURCE[0]}" ready </dev/null >"$home/ready.log" 2>&1 &
    say "setting the box up in the background"
}

ready() {
    set -x
    rm -rf "$home/here"
    mkdir -p "$home/here/tests" # the checkout may change under us
    cp -r "$here" "$home/here/tests/gpu"
    cp -r "$here/../../profiles" "$home/here/profiles"
    tar -C "$home/first" -xf "$home/slices/first.tar"
    # Three interpreters start one after another for one server, each with all of torch and vLLM:
    # without compiled modules, and where none can be written, that is a minute a start.
    nice python3 -m compileall -q -j 0 "$(host_packages)" >"$home/compile.log" 2>&1 || true
    bash "$home/here/tests/gpu/boot.sh" prepare "$home/first"
    touch "$home/is-ready"
    # Read once what every start reads, so that the first does not wait for the disk.
    python3 -c 'import torch; print(torch.__version__, torch.cuda.device_count())'
}

host_packages() { python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

unpack() {
    mkdir -p "$home/site" "$home/archives"
    cat "$home"/slices/site.* | tar -C "$home/archives" -xf -
    for archive in "$home"/archives/site-*.tar.xz; do
        python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1], "r:xz").extractall(sys.argv[2])' \
            "$archive" "$home/site" 2>>"$home/unpack.log" &
    done
    wait
    chmod -R a+rX "$home/site"
    say "unpacked: $(du -sh "$home/site" | cut -f1)"
    python3 -m compileall -q -j 0 "$home/site" >>"$home/compile.log" 2>&1 || true
    say "compiled"
}

go() {
    local seconds=$1
    shift
    unpack
    until [[ -e $home/is-ready ]]; do
        sleep 1
        if ((SECONDS > 240)); then
            tail -n 40 "$home/ready.log"
            say "the box was not set up"
            exit 1
        fi
    done
    say "the box is set up"
    while read -r path; do printf "import site; site.addsitedir('%s')\n" "$path"; done \
        <"$BOX/root/opt/vllm/host-packages" >"$home/site/zz_host.pth"
    setsid bash "$home/here/tests/gpu/boot.sh" run "$home/site" "$@" </dev/null >"$home/boot.log" 2>&1 &
    printf '%s\n' $! >"$home/boot.pid"
    await "$seconds"
}

await() {
    until [[ -e $results/finished ]] || ((SECONDS > $1)) || ! kill -0 "$(<"$home/boot.pid")" 2>/dev/null; do
        sleep 1
    done
    if [[ -e $results/finished ]]; then say "THE DRIVER IS THROUGH"; else say "the driver is still at work"; fi
    collect
}

collect() {
    tail -n 12 "$home/ready.log" || true
    tail -n 5 "$home/boot.log" || true
    cat "$results/driver.out" || true
    [[ -n ${OUT:-} ]] || return 0
    cp "$results/results.json" "$OUT/" 2>/dev/null || true
    cp "$home/ready.log" "$home/boot.log" "$OUT/" || true
    # Caches of vLLM's benchmark lie there too; and what kimisvc keeps says more than its history.
    tar -C "$BOX/root" --exclude='results/.*' -czf "$OUT/results.tar.gz" results var/lib/kimisvc || true
}

case ${1:-} in
wait)
    shift
    await "$@"
    ;;
take | go | ready) "$@" ;;
*) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 2 ;;
esac
