#!/bin/sh
# peers.sh
# Other programs over the same kind of path as `longhaul bench`: two network namespaces and a veth pair. Prints
# for each what it is, which congestion control drove it, and whether its data really went by UDP or TCP. What is
# not installed is installed when we are root on Debian, else reported as absent. Leaves nothing behind but packages.
#
# RUNS (3), SECONDS_EACH of iperf3 (4), MTU (1500), BYTES of files and of UDT (1000000000) can be set.
set -eu

RUNS=${RUNS:-3}
SECONDS_EACH=${SECONDS_EACH:-4}
MTU=${MTU:-1500}
BYTES=${BYTES:-1000000000}
FROM=lh-peers-a-$$
TO=lh-peers-b-$$
A=198.51.100.1
B=198.51.100.2
LIMIT=60

here=$(cd "$(dirname "$0")" && pwd)

say() {
    printf '%-26s %8s  %-8s %-6s %s\n' "$@"
}

absent() {
    say "$1" - - - "absent: $2"
}

# Of numbers on standard input.
median() {
    sort -n | awk '{ v[NR] = $1 } END { if (NR == 0) print "-"; else if (NR % 2) print v[(NR + 1) / 2];
        else printf "%.2f\n", (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

now() {
    date +%s.%N
}

in_a() {
    ip netns exec "$FROM" "$@"
}

in_b() {
    ip netns exec "$TO" "$@"
}

# UDP datagrams sent out of both namespaces so far.
datagrams() {
    for side in in_a in_b; do
        "$side" cat /proc/net/snmp
    done | awk '/^Udp: [0-9]/ { sum += $5 } END { print sum + 0 }'
}

# The transport that carried $2 bytes, by the datagrams sent since the count $1. The count is of what the program
# handed over: one for a train of segments.
transport() {
    sent=$(($(datagrams) - $1))
    if [ "$sent" -gt $(($2 / 131072)) ]; then echo UDP; else echo TCP; fi
}

# A package for a program, where that is possible.
provide() {
    command -v "$1" >/dev/null 2>&1 && return 0
    install_package "$2" && command -v "$1" >/dev/null 2>&1
}

install_package() {
    command -v apt-get >/dev/null 2>&1 || return 1
    echo "longhaul: installing $1" >&2
    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y --no-install-recommends "$1" >/dev/null 2>&1 ||
        { [ -z "${updated:-}" ] && updated=1 && timeout 300 apt-get update >/dev/null 2>&1 &&
            DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y --no-install-recommends "$1" >/dev/null 2>&1; }
}

# The process in the background, which is the program itself and no shell around it.
server=
stop_server() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "$server" ] || wait "$server" 2>/dev/null || true
    server=
}

clean_up() {
    stop_server
    ip netns del "$FROM" 2>/dev/null || true
    ip netns del "$TO" 2>/dev/null || true
    rm -rf "$work" "/etc/netns/$FROM" "/etc/netns/$TO"
    rmdir /etc/netns 2>/dev/null || true
}

# Waits until something in the second namespace listens at TCP or UDP port $1.
wait_for_port() {
    hex=$(printf '%04X' "$1")
    tries=100
    while ! in_b cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp 2>/dev/null | grep -q ":$hex "; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.05
    done
}

iperf() {
    if ! provide iperf3 iperf3; then
        absent "iperf3" "the package iperf3 does not install"
        return
    fi
    version=$(iperf3 --version | sed -n '1s/ (.*//p')
    for algorithm in cubic bbr; do
        : >"$work/rates"
        used=
        sent=$(datagrams)
        run=0
        while [ "$run" -lt "$RUNS" ]; do
            run=$((run + 1))
            ip netns exec "$TO" timeout "$LIMIT" iperf3 -s -1 -p 5201 >/dev/null 2>&1 &
            server=$!
            wait_for_port 5201 || break
            if in_a timeout "$LIMIT" iperf3 -c $B -p 5201 -C "$algorithm" -t "$SECONDS_EACH" -J >"$work/json" 2>/dev/null; then
                # The receiver's count, which is the last but one of the sums.
                awk '/"sum_received"/ { on = 1 } on && /"bits_per_second"/ { gsub(/[^0-9.e+]/, "", $2);
                    printf "%.2f\n", $2 / 1e9; exit }' "$work/json" >>"$work/rates"
                used=$(sed -n 's/.*"sender_tcp_congestion":[^"]*"\([^"]*\)".*/\1/p' "$work/json")
            fi
            stop_server
        done
        rate=$(median <"$work/rates")
        bytes=$(awk -v r="$rate" -v s="$SECONDS_EACH" 'BEGIN { printf "%.0f", (r + 0) * 1e9 / 8 * s }')
        if [ "$rate" = - ]; then
            absent "iperf3 $algorithm" "it fails: $(tr -d '\n' <"$work/json" | sed -n 's/.*"error":[^"]*"\([^"]*\)".*/\1/p')"
        else
            say "iperf3 $algorithm" "$rate" "${used:-?}" "$(transport "$sent" "$bytes")" "$version, memory to memory, nothing encrypted or checked"
        fi
    done
}

udt() {
    if [ ! -e /usr/include/udt/udt.h ] && ! install_package libudt-dev; then
        absent "UDT" "the package libudt-dev does not install"
        return
    fi
    if ! provide g++ g++ || ! g++ -O2 -o "$work/udt" "$here/peers/udt.cpp" -ludt -pthread 2>"$work/errors"; then
        absent "UDT" "the driver does not compile: $(head -n 1 "$work/errors" 2>/dev/null)"
        return
    fi
    version=$(dpkg-query -W -f '${Version}' libudt-dev 2>/dev/null || echo unknown)
    : >"$work/rates"
    sent=$(datagrams)
    run=0
    while [ "$run" -lt "$RUNS" ]; do
        run=$((run + 1))
        ip netns exec "$TO" timeout "$LIMIT" "$work/udt" receive 9000 >"$work/out" 2>/dev/null &
        server=$!
        wait_for_port 9000 || break
        # The receiver may leave before the sender's goodbye is answered: its count decides.
        in_a timeout "$LIMIT" "$work/udt" send $B 9000 "$BYTES" 2>"$work/errors" || true
        wait "$server" || true
        server=
        awk -v want="$BYTES" '$1 == want && $2 > 0 { printf "%.2f\n", $1 * 8 / $2 / 1e9 }' "$work/out" >>"$work/rates"
    done
    rate=$(median <"$work/rates")
    if [ "$rate" = - ]; then
        absent "UDT" "no run was complete in $LIMIT s"
    else
        say "UDT" "$rate" udt "$(transport "$sent" "$BYTES")" "libudt $version, memory to memory, nothing encrypted or checked"
    fi
}

gridftp() {
    if ! provide globus-gridftp-server globus-gridftp-server-progs ||
        ! provide globus-url-copy globus-gass-copy-progs; then
        absent "GridFTP" "globus-gridftp-server-progs or globus-gass-copy-progs does not install"
        return
    fi
    [ -n "$(find / -xdev -name 'libglobus_xio_udt_driver*' -print -quit 2>/dev/null)" ] ||
        install_package libglobus-xio-udt-driver0 || true
    version=$(globus-url-copy -version 2>&1 | awk '{ print $2; exit }')
    # What the namespace's connections get without asking; the two programs cannot ask.
    algorithm=$(in_a sysctl -n net.ipv4.tcp_congestion_control 2>/dev/null || echo '?')
    head -c "$BYTES" /dev/urandom >"$work/file"
    mkdir "$work/to"
    chmod 777 "$work" "$work/to"
    chmod 644 "$work/file"
    ip netns exec "$TO" globus-gridftp-server -aa -anonymous-user nobody -anonymous-group nogroup -p 5000 \
        -control-interface $B -data-interface $B \
        -dc-whitelist udt,gsi,tcp -threads 1 -allow-udt >"$work/server" 2>&1 &
    server=$!
    if ! wait_for_port 5000; then
        absent "GridFTP" "the server does not start: $(head -n 1 "$work/server")"
        stop_server
        return
    fi
    for words in "-p 1" "-p 4" "-udt"; do
        : >"$work/rates"
        sent=$(datagrams)
        run=0
        while [ "$run" -lt "$RUNS" ]; do
            run=$((run + 1))
            start=$(now)
            # shellcheck disable=SC2086
            in_a timeout "$LIMIT" globus-url-copy -fast $words "file://$work/file" "ftp://$B:5000$work/to/copy" \
                >"$work/errors" 2>&1 || break
            end=$(now)
            [ "$(stat -c %s "$work/to/copy")" = "$BYTES" ] || break
            rm -f "$work/to/copy"
            awk -v s="$start" -v e="$end" -v b="$BYTES" 'BEGIN { printf "%.2f\n", b * 8 / (e - s) / 1e9 }' >>"$work/rates"
        done
        rate=$(median <"$work/rates")
        if [ "$rate" = - ]; then
            absent "GridFTP $words" "it fails: $(grep -v '^ *$' "$work/errors" | head -n 1)"
            continue
        fi
        carried=$(transport "$sent" "$BYTES")
        note="globus-url-copy $version, tmpfs to tmpfs, whole command, nothing encrypted or checked"
        [ "$words" != -udt ] || [ "$carried" = UDP ] || note="$note; no data went by UDP, whatever the flag says"
        say "GridFTP $words" "$rate" "$algorithm" "$carried" "$note"
    done
    stop_server
}

if [ "$(id -u)" != 0 ]; then
    echo "longhaul: peers are measured in network namespaces, which takes root: none was" >&2
    exit 0
fi
if ! command -v ip >/dev/null 2>&1 && ! install_package iproute2; then
    echo "longhaul: peers take ip (the package iproute2): none was measured" >&2
    exit 0
fi
if [ -w /dev/shm ]; then base=/dev/shm; else base=${TMPDIR:-/tmp}; fi
work=$(mktemp -d "$base/longhaul-peers-XXXXXX")
trap clean_up EXIT
trap 'exit 1' HUP INT TERM
# The names of these two addresses, seen only inside: GridFTP looks them up and hangs without.
for name in "$FROM" "$TO"; do
    mkdir -p "/etc/netns/$name"
    printf '127.0.0.1 localhost\n%s peer-a\n%s peer-b\n127.0.0.1 %s\n' $A $B "$(uname -n)" >"/etc/netns/$name/hosts"
    ip netns add "$name"
    ip -n "$name" link set lo up
done
ip -n "$FROM" link add veth0 mtu "$MTU" type veth peer name veth0 mtu "$MTU" netns "$TO"
ip -n "$FROM" address add $A/24 dev veth0
ip -n "$TO" address add $B/24 dev veth0
ip -n "$FROM" link set veth0 up
ip -n "$TO" link set veth0 up

echo "peers: MTU $MTU, medians of $RUNS runs, load average $(cut -d ' ' -f 1 /proc/loadavg) before"
say "" Gb/s control went "what it is"
iperf
udt
gridftp
echo "load average $(cut -d ' ' -f 1 /proc/loadavg) after"
