/* Sessions through Longhaul's gateways (docs/relay.md), for C: liblonghaul_relay_c.
 *
 *   longhaul_relay_route *route = longhaul_relay_route_new("gw.example", "token", error, sizeof error);
 *   int fd = longhaul_relay_connect(route, "data.example:443", 10000, error, sizeof error);
 *
 * fd is a TCP socket that carries the session: what is written to it arrives at data.example.
 *
 * Programs that wait for many things at once connect to the gateway themselves and feed a
 * longhaul_relay_dial by readiness, with longhaul_relay_dial_advance, or, where others read and write
 * for them, with header, wanted and receive.
 *
 * A route may be used by many threads at once, a dial by one at a time. Where a function takes
 * `error`, what went wrong is written there in words, cut to error_len bytes with the zero at the end. */
#ifndef LONGHAUL_RELAY_H
#define LONGHAUL_RELAY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gateways in order, and the token that the first one knows. */
typedef struct longhaul_relay_route longhaul_relay_route;
/* One set-up of a session. */
typedef struct longhaul_relay_dial longhaul_relay_dial;

/* How a set-up stands. */
enum {
	LONGHAUL_RELAY_FAILED = -1,    /* longhaul_relay_dial_errno and _message say why */
	LONGHAUL_RELAY_CONNECTED = 0,  /* payload follows */
	LONGHAUL_RELAY_WANT_READ = 1,  /* go on once the socket can be read from */
	LONGHAUL_RELAY_WANT_WRITE = 2, /* go on once it can be written to */
	/* The gateway has proven that its clock differs, and the route remembers that: connect to it
	 * once more, with a new dial; where that says so too, give up. */
	LONGHAUL_RELAY_AGAIN = 3
};

/* The gateways of `via`, "[NAME@]HOST[:PORT]" with commas between, and the first token of a file.
 * NULL where there is none. */
longhaul_relay_route *longhaul_relay_route_new(const char *via, const char *token_file, char *error,
					       size_t error_len);
/* Dials of it live on. */
void longhaul_relay_route_free(longhaul_relay_route *route);
/* The first gateway, "HOST:PORT": that is where to connect. As long as the route lives. */
const char *longhaul_relay_route_gateway(const longhaul_relay_route *route);

/* Connects to `target`, "HOST:PORT", whose name the last gateway resolves. Returns a blocking socket,
 * or -1 with errno. Gives up after timeout_ms, if that is not negative, and after 30 s without an answer
 * of the gateways. */
int longhaul_relay_connect(const longhaul_relay_route *route, const char *target, int timeout_ms,
			   char *error, size_t error_len);

/* A session to `target` on a connection to the first gateway, which was dialled at the address
 * `gateway`: "192.0.2.1:7421", "[2001:db8::1]:7421". NULL with words. */
longhaul_relay_dial *longhaul_relay_dial_new(const longhaul_relay_route *route, const char *target,
					     const char *gateway, char *error, size_t error_len);
void longhaul_relay_dial_free(longhaul_relay_dial *dial);

/* Sends and receives on the connected, non-blocking socket as far as that goes. Nothing behind the
 * answer is read. */
int longhaul_relay_dial_advance(longhaul_relay_dial *dial, int fd);

/* Milliseconds until the answer is given up, 30 s after the beginning. Call `advance` then, or
 * `receive` with no bytes: it returns FAILED, unless the answer has come. */
int longhaul_relay_dial_left(const longhaul_relay_dial *dial);

/* The same as `advance` for who reads and writes otherwise. The header is to be sent once; then at most
 * `wanted` bytes are to be read and given to `receive`, until it returns something else than WANT_READ. */
const void *longhaul_relay_dial_header(const longhaul_relay_dial *dial, size_t *len);
size_t longhaul_relay_dial_wanted(const longhaul_relay_dial *dial);
int longhaul_relay_dial_receive(longhaul_relay_dial *dial, const void *bytes, size_t len);

/* After FAILED: the nearest errno, and what failed, at which gateway. As long as the dial lives. */
int longhaul_relay_dial_errno(const longhaul_relay_dial *dial);
const char *longhaul_relay_dial_message(const longhaul_relay_dial *dial);

#ifdef __cplusplus
}
#endif

#endif
