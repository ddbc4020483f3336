# In a Debian of its own, as root: /first.deb and /second.deb are two versions of the package.

quietly() {
    "$@" > /trial.log 2>&1 || { cat /trial.log; exit 1; }
}

copies() {
    mkdir -p /source
    echo "$1" > /source/file
    : > /server.log
    longhaul serve --once --listen 127.0.0.1:17420 --root /srv/longhaul --allow-write \
        --token-file /etc/longhaul/tokens 2> /server.log &
    timeout 30 sh -c 'until test -s /server.log; do sleep 0.1; done'
    longhaul cp --quiet --token-file /etc/longhaul/tokens /source/file lh://127.0.0.1:17420/
    wait
    cmp /source/file /srv/longhaul/file
}

# A server that nobody came to does not outlive this.
trap 'kill $(jobs -p) 2> /dev/null || :' EXIT
export DEBIAN_FRONTEND=noninteractive
# As if systemd ran: notes what it is asked for.
mkdir -p /run/systemd/system
printf '#!/bin/sh\necho "$@" >> /asked\n' > /usr/bin/deb-systemd-invoke
: > /asked
quietly apt-get install --yes /first.deb
test ! -s /asked
getent passwd longhaul > /dev/null
test -f /usr/lib/systemd/system/longhaul-serve.service
test ! -e /etc/systemd/system/multi-user.target.wants/longhaul-serve.service
longhaul keys new --quiet --token-file /etc/longhaul/tokens
chown longhaul: /etc/longhaul/tokens
longhaul serve --check --config /etc/longhaul/serve.toml
copies first

echo '# ours' >> /etc/longhaul/serve.toml
quietly apt-get install --yes /second.deb
dpkg-query --show longhaul | grep -q next
# A server that runs is that of the new version; none is started.
grep -q '^try-restart .*longhaul-serve.service' /asked
test "$(wc -l < /asked)" = 1
grep -q '# ours' /etc/longhaul/serve.toml
test -s /etc/longhaul/tokens
copies second

quietly apt-get purge --yes longhaul
test ! -e /usr/bin/longhaul
test ! -e /etc/longhaul
# What was served stays.
test -f /srv/longhaul/file
