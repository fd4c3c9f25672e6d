#!/usr/bin/env bash
# Pack what a bare GPU host needs, in slices that travel one by one: pack.sh SITE DEBS MODEL OUT
#
#   SITE   a folder of site-packages with vLLM and what it needs beyond the host's own packages
#   DEBS   Debian packages of systemd and dbus, and the source of pystemd (*.deb, pystemd-*.tar.gz)
#   MODEL  a model folder: config.json and tokenizer are enough for --load-format dummy
#   OUT    gets 0/, 1/, 2/: slices of which none is over SLICE_MB (default 61)
#
# kimisvc is built from HEAD, and its dependencies are fetched for PYTHON (default 3.12). The host
# brings numpy and scipy. Packed archives are kept in OUT/made and not made again: remove what
# changed there. Needs git, xz, pip, and about five minutes for SITE.
set -Eeuo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
site=$(realpath "$1") debs=$(realpath "$2") model=$(realpath "$3")
mkdir -p "$4"
out=$(realpath "$4") root=$(cd "$here/../.." && pwd)
python=${PYTHON:-3.12} slice=$((${SLICE_MB:-61} * 1000000)) pip=("$root/.venv/bin/python" -m pip)
made=$out/made
mkdir -p "$made"
scratch=$(mktemp -d /var/tmp/kimisvc-pack.XXXXXX)
trap 'rm -rf "$scratch"' EXIT

# What no start of a server reads is left out: it would be a tenth of the whole.
left_out=(--exclude=__pycache__ --exclude='*.pyi' --exclude=./pycountry/locales
    --exclude='./mistral_common/data/tekken*' --exclude=./vllm/third_party/fmha_sm100/cutlass)

# pack NAME XZ-FILTER: stdin is a tar; kept if it is there.
pack() { xz -T1 --x86 --lzma2=preset=9e,dict="$2" >"$made/$1.part" && mv "$made/$1.part" "$made/$1"; }

# Alike files next to each other, large ones apart, so that four can be packed and unpacked at once.
if [[ ! -f $made/site-3.tar.xz ]]; then
    cd "$site"
    tar -cf /dev/null -v "${left_out[@]}" . | grep -v '/$' | LC_ALL=C sort >"$scratch/all"
    grep '_vllm_fa3' "$scratch/all" >"$scratch/0" || true
    grep '_C_stable_libtorch' "$scratch/all" | grep -v moe >"$scratch/1" || true
    grep -E '\.so(\.|$)' "$scratch/all" | grep -vxFf "$scratch/0" | grep -vxFf "$scratch/1" >"$scratch/2"
    sort "$scratch"/[012] | comm -23 <(sort "$scratch/all") - >"$scratch/3"
    for n in 0 1 2 3; do
        (tar --owner=0 --group=0 -cf - -T "$scratch/$n" | pack "site-$n.tar.xz" 192MiB) &
        (((n % 2) == 0)) || wait
    done
    wait
fi
[[ -f $made/model.tar.xz ]] || tar --owner=0 --group=0 -C "$model" -cf - . | pack model.tar.xz 8MiB

mkdir -p "$made/wheels"
if ! compgen -G "$made/wheels/click-*" >/dev/null; then
    grep -oP '^    "\K[^"]+(?=",$)' <(sed -n '/^dependencies/,/^]/p' "$root/pyproject.toml") |
        grep -vE '^(scipy|pystemd)' >"$scratch/needs"
    echo lxml >>"$scratch/needs" # of pystemd, which is built there
    "${pip[@]}" download -q --only-binary=:all: --implementation cp --python-version "$python" \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux_2_26_x86_64 --platform manylinux_2_27_x86_64 \
        --platform manylinux2014_x86_64 --platform manylinux_2_12_x86_64 \
        --platform manylinux1_x86_64 -d "$made/wheels" -r "$scratch/needs"
fi
rm -f "$made"/wheels/kimisvc-*.whl
mkdir "$scratch/source"
git -C "$root" archive HEAD | tar -C "$scratch/source" -xf -
"${pip[@]}" wheel -q --no-deps -w "$made/wheels" "$scratch/source"
git -C "$root" rev-parse HEAD >"$made/commit"

# The first slice holds whole what can be set up before the rest is there.
rm -rf "$out"/[0-9]
mkdir "$out/0"
tar -cf "$out/0/first.tar" --owner=0 --group=0 -C "$made" wheels model.tar.xz commit -C "$debs" .
room=$((slice - $(stat -c %s "$out/0/first.tar")))
cd "$made"
tar -cf "$scratch/site.tar" --owner=0 --group=0 site-*.tar.xz
head -c "$room" "$scratch/site.tar" >"$out/0/site.0"
tail -c "+$((room + 1))" "$scratch/site.tar" | split -b "$slice" -d -a 1 - "$scratch/rest."
number=1
for rest in "$scratch"/rest.*; do
    mkdir "$out/$number" && mv "$rest" "$out/$number/site.$number"
    number=$((number + 1))
done
du -b --max-depth=1 "$out" | sort -k2
