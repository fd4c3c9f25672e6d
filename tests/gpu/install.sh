#!/usr/bin/env bash
# Within the box, once: kimisvc out of wheels, and vLLM as an environment of its own.
#
#   install.sh WHEELS SITE PYSTEMD
#
# /opt/kimisvc: a venv with kimisvc and what it needs; numpy and scipy come from the host's Python.
# /opt/vllm: a venv whose packages are SITE, and behind them the host's (torch, transformers, ...).
set -Eeuo pipefail
wheels=$1 site=$2 pystemd=$3
base=$(python3 -c 'import os, sys; print(os.path.realpath(sys._base_executable))')
version=$(python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
packages=$(python3 -c '
import sys
print("\n".join(p for p in sys.path if p.endswith(("site-packages", "dist-packages"))))')

# venv FOLDER: made by hand, for a host may lack ensurepip.
venv() {
    mkdir -p "$1/bin" "$1/lib/$version/site-packages"
    ln -sfn "$base" "$1/bin/python3"
    ln -sfn python3 "$1/bin/python"
    printf 'home = %s\ninclude-system-site-packages = false\n' "$(dirname "$base")" >"$1/pyvenv.cfg"
}

# behind FOLDER PATH...: these are looked into after the venv's own, with their .pth files.
behind() {
    local venv=$1 path
    shift
    for path in "$@"; do printf "import site; site.addsitedir('%s')\n" "$path"; done \
        >"$venv/zz_host.pth"
}

# Services run as users of their own, and have to get there.
for path in $packages /opt/* /opt/gcc/bin; do
    while [[ -d $path && $path != / ]]; do
        chmod a+rx "$path"
        path=$(dirname "$path")
    done
done
for path in $packages; do
    closed=$(find "$path" -maxdepth 2 ! -perm -a=r ! -type l | head -n 3)
    [[ -z $closed ]] || printf 'not readable by others: %s\n' "$closed"
done

venv /opt/kimisvc
python3 -m pip --python /opt/kimisvc/bin/python3 install -q --no-index --no-deps "$wheels"/*.whl
# shellcheck disable=SC2086 # one a word; a path of Python has no blanks here
behind "/opt/kimisvc/lib/$version/site-packages" "$pystemd" $packages
/opt/kimisvc/bin/kimisvc --version

venv /opt/vllm
rmdir "/opt/vllm/lib/$version/site-packages"
ln -sfn "$site" "/opt/vllm/lib/$version/site-packages"
cat >/opt/vllm/bin/vllm <<'SCRIPT'
#!/opt/vllm/bin/python3
import sys

from vllm.entrypoints.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
SCRIPT
chmod 755 /opt/vllm/bin/vllm
printf '%s\n' "$packages" >/opt/vllm/host-packages
