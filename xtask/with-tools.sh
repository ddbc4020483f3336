#!/bin/sh
# with-tools.sh "cc c++" COMMAND...
# Runs COMMAND once the named tools are there: installed by apt-get when we are root on Debian, else named in
# the message. Those of WISHED are installed when we are root on Debian, and else done without. Also sees to it
# that cargo works in this folder.
set -eu

fail() {
    echo "longhaul: $*" >&2
    exit 1
}

# Debian's package for a tool.
package_of() {
    case $1 in
    cc) echo "gcc libc6-dev" ;;
    c++) echo "g++" ;;
    ip) echo "iproute2" ;;
    postgres) echo "postgresql" ;;
    globus-xio) echo "libglobus-xio-dev" ;;
    sshd) echo "openssh-server openssh-client" ;;
    *) echo "$1" ;;
    esac
}

is_there() {
    case $1 in
    cc) command -v cc >/dev/null 2>&1 && echo '#include <stdio.h>' | cc -E - >/dev/null 2>&1 ;;
    ca-certificates) [ -e /etc/ssl/certs/ca-certificates.crt ] ;;
    # Debian keeps it out of PATH, by version.
    postgres) ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null 2>&1 ;;
    globus-xio) [ -e /usr/include/globus/globus_xio_driver.h ] ;;
    sshd) [ -x /usr/sbin/sshd ] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

# Tests start servers of their own: the package is not to start one of this machine's.
without_cluster() {
    apt_install postgresql-common && echo "create_main_cluster = false" >>/etc/postgresql-common/createcluster.conf
}

# The same of another server: it is started neither now nor at the next boot.
without_service() {
    export RUNLEVEL=1
    mkdir -p /etc/systemd/system && { [ -e "/etc/systemd/system/$1.service" ] || ln -s /dev/null "/etc/systemd/system/$1.service"; }
}

without_its_server() {
    case $1 in
    postgres) without_cluster ;;
    sshd) without_service ssh ;;
    prometheus) without_service prometheus ;;
    esac
}

# What of it is there afterwards is found out by the tests.
install_wished() {
    { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; } || return 0
    for tool in "$@"; do
        is_there "$tool" && continue
        echo "longhaul: installing $(package_of "$tool")" >&2
        # shellcheck disable=SC2046
        without_its_server "$tool" && apt_install $(package_of "$tool") ||
            echo "longhaul: apt-get could not install $(package_of "$tool")" >&2
    done
}

apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    # The lists may be absent or old: try again with new ones.
    apt-get install -y --no-install-recommends "$@" >/dev/null 2>&1 ||
        { apt-get update >/dev/null && apt-get install -y --no-install-recommends "$@" >/dev/null; }
}

install_missing() {
    missing=
    for tool in "$@"; do
        is_there "$tool" || missing="$missing $(package_of "$tool")"
    done
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null 2>&1 || fail "needs, in Debian's names:$missing"
    [ "$(id -u)" = 0 ] || fail "first run: sudo apt-get install$missing"
    echo "longhaul: installing$missing" >&2
    # shellcheck disable=SC2086
    apt_install $missing || fail "apt-get could not install$missing"
}

# rust-toolchain.toml names one release. Where rustup has it, nothing is to be done; else a toolchain that is
# already here and new enough will do. None is downloaded: that is the user's decision.
choose_toolchain() {
    command -v cargo >/dev/null 2>&1 || PATH=$PATH:$HOME/.cargo/bin
    command -v cargo >/dev/null 2>&1 || fail "cargo is missing: install Rust with rustup (https://rustup.rs)"
    export RUSTUP_AUTO_INSTALL=0
    if cargo --version >/dev/null 2>&1; then
        return 0
    fi
    command -v rustup >/dev/null 2>&1 || fail "cargo does not start: $(cargo --version 2>&1 | head -n 1)"
    wanted=$(sed -n 's/^channel = "\([0-9.]*\)"$/\1/p' rust-toolchain.toml)
    for name in $(rustup toolchain list | cut -d ' ' -f 1); do
        have=$(rustup run "$name" rustc --version 2>/dev/null | cut -d ' ' -f 2)
        case $have in
        "" | *-*) continue ;;
        esac
        if [ "$(printf '%s\n' "$wanted" "$have" | sort -V | head -n 1)" = "$wanted" ]; then
            echo "longhaul: Rust $wanted is not installed; using $name ($have)" >&2
            export RUSTUP_TOOLCHAIN="$name"
            return 0
        fi
    done
    fail "needs Rust $wanted or newer: rustup toolchain install $wanted"
}

cd "$(dirname "$0")/.."
# shellcheck disable=SC2086
install_missing ca-certificates $1
shift
# shellcheck disable=SC2086
install_wished ${WISHED:-}
choose_toolchain
export PATH
exec "$@"
