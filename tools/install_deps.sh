#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs, by apt, the packages that building and testing need and the machine lacks; does nothing if it has them all.
# Works as root or with sudo.
set -eu

packages="build-essential cmake ninja-build pkg-config python3 python3-venv python3-pyelftools
	autoconf bzip2 clang libclang-rt-dev
	libcmocka-dev libjansson-dev libinih-dev liblzma-dev zlib1g-dev libzstd-dev liblz4-dev gdb"

if ! command -v apt-get >/dev/null; then
	echo "install_deps: only Debian and its relatives are known here; needed:" $packages >&2
	exit 1
fi

missing=
for package in $packages; do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
	as_root="env"
elif command -v sudo >/dev/null; then
	as_root="sudo"
else
	echo "install_deps: missing, and neither root nor sudo to install them with:$missing" >&2
	exit 1
fi

echo "install_deps: installing$missing"
# If a mirror does not answer, others may still have what is missing. A machine that has just started often upgrades
# itself, and holds dpkg's lock for a while.
wait="-o DPkg::Lock::Timeout=300"
$as_root apt-get -q $wait -o Acquire::Retries=2 -o Acquire::http::Timeout=20 update || true
if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q $wait install -y --no-install-recommends $missing; then
	echo "install_deps: could not install (no network, no mirror that has them, or apt is in use):$missing" >&2
	exit 1
fi
