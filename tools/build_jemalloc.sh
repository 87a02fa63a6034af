#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the jemalloc that holds terrazzo's metadata: a static, position independent archive whose names begin
# with trz_, without initial-exec thread-local storage (so that the library can be dlopen'ed) and without
# taking over malloc.
#
#     build_jemalloc.sh DESTINATION [SOURCE]
#
# SOURCE is an unpacked jemalloc tree. Without it, this fetches the tarball of Debian's (or Ubuntu's) source package by
# apt, which checks it, from the mirrors that the machine is configured for; it writes only to DESTINATION and the
# cache, and needs no privilege. DESTINATION gets include/ and lib/libtrz_jemalloc.a. A build is kept in
# ${XDG_CACHE_HOME:-~/.cache}/terrazzo for the next fresh tree.
set -eu

destination=$1
source=${2:-}
me=$(readlink -f "$0")
version_codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
key=$({ cat "$me"; cc --version; uname -m; echo "$version_codename"; } | sha256sum | cut -c1-24)
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/terrazzo/jemalloc-$key
stamp=$destination/stamp
wanted="$key $source"

say() {
	echo "jemalloc: $*"
}

give_up() {
	say "$*"
	say "ways out: -DTRZ_JEMALLOC_SOURCE=<unpacked source>, or -DTRZ_METADATA=libc (no jemalloc)"
	exit 1
}

# Writes the deb-src twin of every configured deb line or stanza of this release into the folder $1.
source_lists() {
	suites=" ${version_codename:-none} stable oldstable testing unstable sid "
	for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
		[ -r "$file" ] || continue
		awk -v suites="$suites" '
			$1 != "deb" && $1 != "deb-src" { next }
			{
				uri = 2
				if ($2 ~ /^\[/)
					while ($(uri++) !~ /\]$/ && uri < NF) ;
				if ($uri !~ /^cdrom:/ && index(suites, " " $(uri + 1) " ")) {
					$1 = "deb-src"
					print
				}
			}' "$file" >"$1/$(basename "$file" .list).list"
	done
	for file in /etc/apt/sources.list.d/*.sources; do
		[ -r "$file" ] || continue
		awk -v suites="$suites" '
			function flush(   i) {
				if (debian && !disabled)
					for (i = 1; i <= lines; i++)
						print line[i]
				if (lines)
					print ""
				lines = debian = disabled = 0
			}
			/^[ \t]*$/ { flush(); next }
			/^#/ { next }
			{ field = tolower($1) }
			field == "types:" { $0 = "Types: deb-src" }
			field == "enabled:" && tolower($2) == "no" { disabled = 1 }
			field == "suites:" {
				for (i = 2; i <= NF; i++)
					if (index(suites, " " $i " "))
						debian = 1
			}
			{ line[++lines] = $0 }
			END { flush() }' "$file" >"$1/$(basename "$file")"
	done
}

# Fetches and unpacks the source package below the folder $1; prints nothing but errors.
fetch() {
	command -v apt-get >/dev/null || give_up "this machine has no apt-get to fetch the source package with"
	command -v bzip2 >/dev/null || give_up "bzip2 is missing, which unpacks the source package's tarball"
	mkdir -p "$1/lists/partial" "$1/parts" "$1/cache"
	source_lists "$1/parts"
	set -- "$1" -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$1/parts" \
		-o Dir::State::lists="$1/lists" -o Dir::Cache="$1/cache" -o APT::Sandbox::User="$(id -un)" \
		-o Acquire::Retries=2 -o Acquire::http::Timeout=20
	work=$1
	shift
	if ! { apt-get "$@" update && cd "$work" && apt-get "$@" source --tar-only jemalloc; } >"$work/log" 2>&1; then
		cat "$work/log"
		give_up "the source package cannot be fetched: no network, or no mirror in /etc/apt serves it"
	fi
	tar -xf jemalloc_*.orig.tar.*
}

# Builds the tree $1 and installs header and archive into the folder $2.
build() {
	cd "$1" &&
	if [ ! -x configure ]; then
		command -v autoconf >/dev/null || give_up "$1 has no configure script and autoconf is missing"
		autoconf
	fi &&
	CFLAGS='-O2 -g1 -fPIC -fvisibility=hidden' CC=cc ./configure --disable-initial-exec-tls \
		--with-jemalloc-prefix=trz_je_ --with-private-namespace=trz_ --without-export --disable-cxx \
		--disable-shared --disable-doc --disable-libdl --disable-stats --disable-fill &&
	make -j"$(nproc)" lib/libjemalloc_pic.a &&
	mkdir -p "$2/include/jemalloc" "$2/lib" &&
	cp include/jemalloc/jemalloc.h "$2/include/jemalloc/" &&
	cp COPYING "$2/" &&
	cp lib/libjemalloc_pic.a "$2/lib/libtrz_jemalloc.a"
}

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
	exit 0
fi
rm -rf "$destination"
mkdir -p "$destination"
destination=$(readlink -f "$destination")

if [ -z "$source" ] && [ -f "$cache/lib/libtrz_jemalloc.a" ]; then
	say "taking the build in $cache"
	cp -R "$cache/." "$destination/"
else
	tree=$destination/work
	mkdir -p "$tree"
	if [ -n "$source" ]; then
		[ -d "$source/include/jemalloc" ] || give_up "$source is not a jemalloc source tree"
		cp -R "$source" "$tree/jemalloc"
	else
		say "fetching the source package"
		fetch "$tree"
	fi
	say "building (about a minute)"
	if ! (build "$(ls -d "$tree"/jemalloc*/)" "$destination") >"$destination/log" 2>&1; then
		tail -n 30 "$destination/log"
		give_up "the build failed; the whole log is $destination/log"
	fi
	rm -rf "$tree"
	if [ -z "$source" ] && mkdir -p "$cache" 2>/dev/null; then
		cp -R "$destination/." "$cache.$$" && rm -rf "$cache" && mv "$cache.$$" "$cache"
	fi
fi
echo "$wanted" >"$destination/stamp"
