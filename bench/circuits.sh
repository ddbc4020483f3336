#!/bin/sh
# Three copies over one link of 800 Mb/s, 50 ms, 128 KiB of buffer, asked for half a second apart: booked by VBLS and
# followed (`cp --circuit`), then booked at a fixed rate (FBLS) and sent at it. Figures are seconds from the first request.
#
#   bench/circuits.sh [PROGRAM]        as root; needs bc and jq, and a machine that does little else
set -eu
program=$(command -v "${1:-longhaul}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir there
head -c 200000000 /dev/urandom > file
"$program" keys new -q --token-file token > /dev/null
cat > lab.toml <<'END'
name = "three"
[[node]]
name = "host"
[[node]]
name = "peer"
[[link]]
name = "ip"
between = ["host", "peer"]
both = { delay = "25ms", rate = "100Mbps" }
[[link]]
name = "circuit"
between = ["host", "peer"]
both = { delay = "25ms", rate = "800Mbps", queue = "128KiB" }
END
cat > circuits.toml <<'END'
store = "book.db"
[rules]
guard = "1ms"
[[link]]
name = "l"
from = "a"
to = "b"
capacity = "800Mbps"
[[project]]
name = "p"
[[access]]
token_file = "token"
project = "p"
role = "operator"
END
# Runs at the sending host: $1 is the way of booking.
cat > host.sh <<'END'
since() { printf '%.2f' "$(echo "$1 - $began" | bc)"; }
vbls() {
    asked=$(date +%s.%N)
    "$program" cp --json -q --token-file token --circuit http://127.0.0.1:7430/a/b --circuit-to 192.0.2.3 --margin 2 \
        --rate "$1Mbps" file "lh://198.51.100.2/vbls$1" > "vbls$1.json"
    at() { since "$asked + $(jq "$1" "vbls$2.json")"; }
    over_ip=$(jq .circuit.ip_bytes "vbls$1.json")
    echo "| VBLS | $1 | $(at .circuit.planned_seconds "$1") | $(at .circuit.left_seconds "$1") | $(at .seconds "$1") | $over_ip |"
}
fbls() {
    "$program" circuits request a b --json -q --token-file token --bytes 213MB --max-rate "$1Mbps" --policy fixed > "fbls$1.json"
    from=$(date -d "$(jq -r '.bookings[0].ranges[0].start' "fbls$1.json")" +%s.%N)
    finish=$(date -d "$(jq -r '.bookings[0].finish' "fbls$1.json")" +%s.%N)
    wait=$(echo "$from - $(date +%s.%N)" | bc)
    case $wait in -*) ;; *) sleep "$wait" ;; esac
    "$program" cp -q --token-file token --profile trc --rate "$1Mbps" file "lh://192.0.2.3/fbls$1"
    echo "| FBLS | $1 | $(since "$finish") | | $(since "$(date +%s.%N)") | |"
}
"$program" circuits serve -q --config circuits.toml &
service=$!
sleep 1
began=$(date +%s.%N)
for rate in 300 400 600; do
    "$1" "$rate" &
    copies="${copies:-} $!"
    sleep 0.5
done
wait $copies
kill "$service"
wait "$service"
END
echo '| booked by | Rmax, Mb/s | planned | circuit left | durable | bytes over IP |'
echo '|---|---|---|---|---|---|'
XDG_STATE_HOME=$folder
export program XDG_STATE_HOME
for way in vbls fbls; do
    rm -f book.db*
    "$program" lab path --topology lab.toml --run peer="$program serve -q --root there --token-file token" -- \
        sh host.sh "$way" 2> "$way.log" | grep '^|' || { cat "$way.log" >&2; exit 1; }
done
