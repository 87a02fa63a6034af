#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Fetches plotly.js, with which `terrazzo report` draws, from the Python package that ships it: a fixed version with a
# fixed checksum, by pip, from the package index that the machine is configured for.
#
#     fetch_plotly.sh DESTINATION
#
# DESTINATION gets plotly.min.js and its license. A copy is kept in ${XDG_CACHE_HOME:-~/.cache}/terrazzo for the next
# fresh tree. Exit status 1, and nothing in DESTINATION: it is not available.
set -eu

version=7.1.0
checksum=dbb7fa18afce40d0a8e80d1bf162eceb3faa0ce5a77fe741ad09a74cf78f53f3
destination=$1
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/terrazzo/plotly-$version
python=${PYTHON:-python3}

if [ -f "$destination/stamp" ] && [ "$(cat "$destination/stamp")" = "$checksum" ]; then
	exit 0
fi
rm -rf "$destination"
mkdir -p "$destination"
if [ -f "$cache/plotly.min.js" ] && [ "$(cat "$cache/stamp")" = "$checksum" ]; then
	cp "$cache/plotly.min.js" "$cache/LICENSE.txt" "$cache/stamp" "$destination/"
	exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Debian's python3 comes without pip, but can make an environment that has it.
if ! "$python" -m pip --version >/dev/null 2>&1; then
	"$python" -m venv "$work/venv" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
	python=$work/venv/bin/python
fi
echo "plotly==$version --hash=sha256:$checksum" >"$work/requirements"
if ! "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
	--dest "$work" -r "$work/requirements" >"$work/log" 2>&1; then
	tail -n 3 "$work/log" >&2
	exit 1
fi
"$python" - "$work/plotly-$version-py3-none-any.whl" "$destination" <<'END'
import sys, zipfile
wheel, destination = zipfile.ZipFile(sys.argv[1]), sys.argv[2]
for name in wheel.namelist():
    if name.endswith(("package_data/plotly.min.js", "licenses/LICENSE.txt")):
        with open(f"{destination}/{name.rpartition('/')[2]}", "wb") as f:
            f.write(wheel.read(name))
END
echo "$checksum" >"$destination/stamp"
if mkdir -p "$cache" 2>/dev/null; then
	cp "$destination/plotly.min.js" "$destination/LICENSE.txt" "$destination/stamp" "$cache/"
fi
