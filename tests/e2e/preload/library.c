/* Uses liblonghaul_relay_c: library VIA TOKEN_FILE TARGET blocking|ready|parts */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "longhaul_relay.h"

static int refused(int number, const char *words)
{
	printf("%s: %s\n", strerror(number), words);
	return 1;
}

/* A connection to "ADDRESS:PORT", IPv4. */
static int dialled(const char *place)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	char host[64];
	snprintf(host, sizeof host, "%s", place);
	char *port = strrchr(host, ':');
	*port++ = 0;
	address.sin_port = htons(atoi(port));
	inet_pton(AF_INET, host, &address.sin_addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		exit(2);
	return fd;
}

int main(int argc, char **argv)
{
	char error[256], back[6] = "";
	if (argc != 5)
		return 2;
	longhaul_relay_route *route = longhaul_relay_route_new(argv[1], argv[2], error, sizeof error);
	if (!route)
		return refused(0, error);
	int fd = -1, how = LONGHAUL_RELAY_FAILED;
	if (!strcmp(argv[4], "blocking")) {
		fd = longhaul_relay_connect(route, argv[3], 60000, error, sizeof error);
		if (fd < 0)
			return refused(errno, error);
	} else {
		const char *gateway = longhaul_relay_route_gateway(route);
		fd = dialled(gateway);
		longhaul_relay_dial *dial =
			longhaul_relay_dial_new(route, argv[3], gateway, error, sizeof error);
		if (!dial)
			return refused(0, error);
		if (!strcmp(argv[4], "ready")) {
			fcntl(fd, F_SETFL, O_NONBLOCK);
			while ((how = longhaul_relay_dial_advance(dial, fd)) > 0) {
				struct pollfd wait = { fd, how == LONGHAUL_RELAY_WANT_READ ? POLLIN : POLLOUT, 0 };
				poll(&wait, 1, longhaul_relay_dial_left(dial));
			}
			fcntl(fd, F_SETFL, 0);
		} else {
			char buffer[4096];
			size_t size;
			const void *header = longhaul_relay_dial_header(dial, &size);
			if (write(fd, header, size) != (ssize_t)size)
				return 2;
			do {
				struct pollfd wait = { fd, POLLIN, 0 };
				ssize_t got = 0;
				if (poll(&wait, 1, longhaul_relay_dial_left(dial)) > 0) {
					got = read(fd, buffer, longhaul_relay_dial_wanted(dial));
					if (got <= 0)
						return 2;
				}
				how = longhaul_relay_dial_receive(dial, buffer, got);
			} while (how == LONGHAUL_RELAY_WANT_READ);
		}
		if (how != LONGHAUL_RELAY_CONNECTED)
			return refused(longhaul_relay_dial_errno(dial), longhaul_relay_dial_message(dial));
		longhaul_relay_dial_free(dial);
	}
	longhaul_relay_route_free(route);
	if (write(fd, "there", 5) != 5 || recv(fd, back, 5, MSG_WAITALL) != 5)
		return 2;
	printf("%s and back\n", back);
	return 0;
}
