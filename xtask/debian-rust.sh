#!/bin/sh
# debian-rust.sh FOLDER VERSION
# Unpacks Debian's Rust compiler with the sources of its libraries below FOLDER, without installing anything: core
# is built from source for targets that no package has. VERSION is the oldest that will do.
set -eu

folder=$1
wanted=$2

fail() {
    echo "longhaul: $*" >&2
    exit 1
}

# Releases of Debian that are older than a browser's compiler have that one beside their own.
newest() {
    for package in rustc rustc-web; do
        apt-cache show "$package" 2>/dev/null | sed -n "s/^Version: /$package /p"
    done | sort -k 2 -V | tail -n 1
}

command -v apt-get >/dev/null 2>&1 || fail "this is no Debian: rustup component add rust-src"
# The lists may be absent or old; who is not root makes do with those that are there.
[ "$(id -u)" != 0 ] || apt-get update >/dev/null
found=$(newest)
package=${found% *}
version=${found#* }
[ -n "$found" ] || fail "Debian's lists of packages know no rustc: apt-get update"
[ "$(printf '%s\n' "$wanted" "$version" | sort -V | head -n 1)" = "$wanted" ] ||
    fail "Debian has Rust $version, too old; $wanted takes: rustup component add rust-src"

# The compiler, its libraries, the library of LLVM; the rest of what it depends on comes with a C compiler.
names=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
    --no-enhances "$package" | grep -E '^(libstd-rust|libllvm|librust)' | sort -u)
case $package in
rustc-web) source=rust-web-src ;;
*) source=rust-src ;;
esac
rm -rf "$folder"
mkdir -p "$folder/packages"
(
    cd "$folder/packages"
    # shellcheck disable=SC2086
    apt-get -q download "$package=$version" "$source=$version" $names >/dev/null 2>&1
) || fail "apt-get could not download $package and $source"
for file in "$folder"/packages/*.deb; do
    dpkg -x "$file" "$folder/root"
done
rm -rf "$folder/packages"
