#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Fetches RMM's headers, which the tests of terrazzo/rmm.hpp compile against, from its Python packages: the last one
# that is all headers, and a new one with the headers of rapids_logger that it needs; fixed versions with fixed
# checksums, by pip, from the package index that the machine is configured for.
#
#     fetch_rmm.sh DESTINATION
#
# DESTINATION gets a folder for each version. Exit status 1: they are not available.
set -eu

destination=$1
python=${PYTHON:-python3}
[ -f "$destination/26.10.0/stamp" ] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Debian's python3 comes without pip, but can make an environment that has it.
if ! "$python" -m pip --version >/dev/null 2>&1; then
	"$python" -m venv "$work/venv" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
	python=$work/venv/bin/python
fi

# fetch VERSION PACKAGE==VERSION:SHA256...
fetch()
{
	version=$1
	shift
	mkdir -p "$work/$version/wheels"
	for package; do
		echo "${package%%:*} --hash=sha256:${package##*:}" >>"$work/$version/requirements"
	done
	if ! "$python" -m pip download --quiet --disable-pip-version-check --retries 1 --timeout 20 --no-deps \
		--only-binary :all: --require-hashes --dest "$work/$version/wheels" -r "$work/$version/requirements" \
		>"$work/log" 2>&1; then
		tail -n 3 "$work/log" >&2
		exit 1
	fi
	for wheel in "$work/$version/wheels"/*.whl; do
		"$python" -m zipfile -e "$wheel" "$work/$version"
	done
	rm -rf "$work/$version/wheels" "${destination:?}/$version"
	touch "$work/$version/stamp"
	mkdir -p "$destination"
	mv "$work/$version" "$destination/$version"
}

fetch 24.12.1 librmm-cu12==24.12.1:01ee26e0f50e5e919b1d4d3cc8baf2b21ba7ebdde3e6edfc3390011e90d1da35
fetch 26.10.0 librmm-cu12==26.10.0:c4269c256b35364007c8c53c15060fd04c9762c488c943ea8ab7ede37234beaa \
	rapids-logger==0.3.0:9d9094dd241c4e0f2d0c3bad448871e62f9b915e1ef65db41b0a1cf4473b1066
