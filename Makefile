# Each target works alone on a Debian machine with a Rust toolchain, and installs what else it needs when run as
# root. `make help` says what there is.

PREFIX ?= /usr/local
SHARE := $(PREFIX)/share
SEEDS ?= 20000

# aws-lc-sys, the only C in the build, takes a C compiler and nothing else.
WITH := xtask/with-tools.sh cc
TARGET := $(or $(CARGO_TARGET_DIR),target)
LONGHAUL := $(TARGET)/release/longhaul
TEST := cargo --config 'target."cfg(unix)".runner="xtask/run-test.sh"' test --workspace --locked --no-fail-fast
XIO := $(TARGET)/release/libglobus_xio_longhaul_driver.so
# What tests use beside it: they are ignored, with the reason, where that is missing.
WISHED := ip postgres strace curl openssl iperf3 globus-xio rsync sshd b3sum zsh fish prometheus
# What `longhaul bench --peers` runs beside Longhaul.
PEERS := 'iperf3 cubic x1' 'gridftp -udt' udt4
SERVER_PEERS := rsync-ssh uftp 'haproxy cubic x1'

.DEFAULT_GOAL := help
.PHONY: help demo test bench install deb lint longhaul xio

help:
	@echo 'make demo      a verified transfer over an emulated long path, and what it shows'
	@echo 'make test      the simulation over SEEDS=$(SEEDS) seeds, then all tests'
	@echo 'make bench     this machine'\''s limits, Longhaul and its peers, as ratios'
	@echo 'make install   the program, its pages, completions, preload and C library below PREFIX=$(PREFIX) (DESTDIR is respected)'
	@echo 'make deb       a Debian package with the server as a service that is off, below target/debian'
	@echo 'make xio       the Globus XIO driver, for GridFTP through gateways; make install takes it along'
	@echo 'make lint      format, clippy, docs, tidy: what CI checks besides the tests'

longhaul:
	@$(WITH) cargo build --release --locked -p longhaul-cli -p longhaul-preload -p longhaul-relay-c

demo: longhaul
	@$(LONGHAUL) demo

# Simulation at release speed; the tests with overflow checks and assertions, libraries optimised (Cargo.toml).
# The tests run the program itself, so it is built first, with the features that tests ask for: else half of it
# is compiled twice. It then installs its peers, and with SERVERS=yes those too whose packages start a server on
# this machine. Examples are compiled by `make lint` alone.
test:
	@WISHED='$(WISHED)' $(WITH) cargo xtask swarm --seeds $(SEEDS)
	@$(WITH) cargo build --workspace --bins --locked --features longhaul-files/test-faults
	-@$(TARGET)/debug/longhaul lab peers --install >/dev/null
	-@[ '$(SERVERS)' != yes ] || $(TARGET)/debug/longhaul lab peers --install $(SERVER_PEERS) >/dev/null
	@$(WITH) $(TEST) --tests; ended=$$?; $(WITH) $(TEST) --doc && exit $$ended

bench: longhaul
	-@$(LONGHAUL) lab peers --install $(PEERS) >/dev/null
	@$(LONGHAUL) bench --peers

install: longhaul
	install -D -m 755 $(LONGHAUL) $(DESTDIR)$(PREFIX)/bin/longhaul
	install -d $(DESTDIR)$(SHARE)/bash-completion/completions $(DESTDIR)$(SHARE)/zsh/site-functions $(DESTDIR)$(SHARE)/fish/vendor_completions.d
	$(LONGHAUL) man $(DESTDIR)$(SHARE)/man/man1
	$(LONGHAUL) completions bash > $(DESTDIR)$(SHARE)/bash-completion/completions/longhaul
	$(LONGHAUL) completions zsh > $(DESTDIR)$(SHARE)/zsh/site-functions/_longhaul
	$(LONGHAUL) completions fish > $(DESTDIR)$(SHARE)/fish/vendor_completions.d/longhaul.fish
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/longhaul $(TARGET)/release/liblonghaul_preload.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib $(TARGET)/release/liblonghaul_relay_c.a $(TARGET)/release/liblonghaul_relay_c.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include bindings/c/include/longhaul_relay.h
	[ ! -e $(XIO) ] || install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib $(XIO)

deb: longhaul
	@$(WITH) cargo xtask deb

xio:
	@xtask/with-tools.sh 'cc globus-xio' cargo build --release --locked -p longhaul-relay-c
	@bindings/xio/build.sh $(TARGET)/release

lint:
	@xtask/with-tools.sh 'cc c++' cargo xtask ci
