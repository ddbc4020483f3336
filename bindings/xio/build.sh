#!/bin/sh
# build.sh FOLDER: makes FOLDER/libglobus_xio_longhaul_driver.so with the liblonghaul_relay_c.a there, which is
# part of it. Needs Debian's libglobus-xio-dev.
set -eu
here=$(dirname "$0")
"${CC:-cc}" -Wall -Wextra -Werror -O2 -fPIC -shared -o "$1/libglobus_xio_longhaul_driver.so" \
    "$here/longhaul_driver.c" -I"$here/../c/include" -I/usr/include/globus \
    "$1/liblonghaul_relay_c.a" -Wl,--exclude-libs,ALL -lglobus_xio -lglobus_common -ldl -lm -lpthread
