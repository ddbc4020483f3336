#!/bin/sh
# run-test.sh BINARY...
# Runs a test binary as cargo would. Tests that run the program between processes wait more than they work: more
# of them run at once than there are processors, which makes them twice as fast on two.
case ${1##*/} in
e2e-* | adversary-*) export RUST_TEST_THREADS="${RUST_TEST_THREADS:-4}" ;;
esac
exec "$@"
