/* A client that knows of no gateways, for the tests of the preload.
 *
 *   client ADDRESS PORT MODE
 *
 * It says on standard output how it went: "done", or the name of an errno and where it came from. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sockaddr_in target;

static void fail(const char *where)
{
	printf("%s: %s\n", where, strerrorname_np(errno));
	exit(1);
}

static int stream(int flags)
{
	int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
	if (fd < 0)
		fail("socket");
	return fd;
}

static int attempt(int fd)
{
	return connect(fd, (struct sockaddr *)&target, sizeof target);
}

static void check_peer(int fd)
{
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;
	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
		fail("getpeername");
	if (len != sizeof peer || peer.sin_family != AF_INET || peer.sin_port != target.sin_port ||
	    peer.sin_addr.s_addr != target.sin_addr.s_addr) {
		printf("another peer: %s:%d\n", inet_ntoa(peer.sin_addr), ntohs(peer.sin_port));
		exit(1);
	}
}

/* Sends a line that names `who` and reads it back. */
static void echo(int fd, int who)
{
	char out[64], in[64];
	int len = snprintf(out, sizeof out, "line of %d\n", who), got = 0;
	if (write(fd, out, len) != len)
		fail("write");
	while (got < len) {
		ssize_t n = read(fd, in + got, sizeof in - got);
		if (n < 0)
			fail("read");
		if (n == 0) {
			printf("end of file after %d bytes\n", got);
			exit(1);
		}
		got += n;
	}
	if (got != len || memcmp(in, out, len)) {
		printf("other bytes came back\n");
		exit(1);
	}
}

static int connected(void)
{
	int fd = stream(0);
	if (attempt(fd) < 0)
		fail("connect");
	return fd;
}

static void *thread(void *number)
{
	for (int i = 0; i < 20; i++) {
		int fd = connected();
		check_peer(fd);
		echo(fd, (int)(long)number);
		close(fd);
	}
	return NULL;
}

static void join(pid_t child)
{
	int status;
	if (waitpid(child, &status, 0) != child || status != 0) {
		printf("a child failed\n");
		exit(1);
	}
}

/* Threads that connect at the same time; then sockets that go to children, by fork and by exec. */
static void family(char **argv)
{
	pthread_t threads[8];
	for (long i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, thread, (void *)i);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	/* Pending over a fork: the child reads first, then the parent. */
	int pending = stream(SOCK_NONBLOCK);
	if (attempt(pending) == 0 || errno != EINPROGRESS)
		fail("connect");
	pid_t child = fork();
	if (child == 0) {
		fcntl(pending, F_SETFL, 0);
		echo(pending, 1);
		exit(0);
	}
	join(child);
	echo(pending, 2);
	int fd = dup(connected());
	child = fork();
	if (child == 0) {
		char number[16];
		snprintf(number, sizeof number, "%d", fd);
		execl(argv[0], argv[0], argv[1], argv[2], "inherited", number, NULL);
		fail("exec");
	}
	join(child);
	echo(fd, 4);
}

/* Edge-triggered, registered before it connects. The client speaks first, or only listens: then no
 * function is called between `connect` and the first event for reading. */
static void edges(int speaks, size_t len)
{
	int fd = stream(SOCK_NONBLOCK), loop = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };
	char buffer[65536];
	size_t sent = 0, got = 0;
	int writable = 0, over = 0;
	if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) < 0)
		fail("epoll_ctl");
	if (attempt(fd) == 0 || errno != EINPROGRESS)
		fail("connect");
	while (!over) {
		if (epoll_wait(loop, &event, 1, -1) < 0)
			fail("epoll_wait");
		if (event.events & EPOLLOUT)
			writable = 1;
		while (speaks && writable && sent < len) {
			struct iovec part = { buffer, sizeof buffer < len - sent ? sizeof buffer : len - sent };
			for (size_t i = 0; i < part.iov_len; i++)
				buffer[i] = (char)((sent + i) % 251);
			ssize_t n = writev(fd, &part, 1);
			if (n < 0 && errno == EAGAIN)
				writable = 0;
			else if (n < 0)
				fail("writev");
			else
				sent += n;
			if (sent == len)
				shutdown(fd, SHUT_WR);
		}
		while (event.events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) {
			ssize_t n = recv(fd, buffer, sizeof buffer, 0);
			if (n < 0 && errno == EAGAIN)
				break;
			if (n < 0)
				fail("recv");
			for (ssize_t i = 0; i < n; i++, got++)
				if (buffer[i] != (char)(got % 251)) {
					printf("byte %zu is another\n", got);
					exit(1);
				}
			if (n == 0) {
				over = 1;
				break;
			}
		}
	}
	if (got != len) {
		printf("%zu bytes came\n", got);
		exit(1);
	}
}

/* Speaks first, by sendfile, and reads it back. */
static void send_file(size_t len)
{
	int fd = stream(SOCK_NONBLOCK), from = fileno(tmpfile());
	struct pollfd wait = { fd, POLLOUT, 0 };
	off_t at = 0;
	ssize_t n;
	size_t got = 0;
	char buffer[4096];
	for (size_t i = 0; i < len; i++)
		pwrite(from, (char[]){ i % 251 }, 1, i);
	if (attempt(fd) == 0 || errno != EINPROGRESS)
		fail("connect");
	while ((size_t)at < len && poll(&wait, 1, -1) == 1)
		if (sendfile(fd, from, &at, len - at) < 0 && errno != EAGAIN)
			fail("sendfile");
	shutdown(fd, SHUT_WR);
	wait.events = POLLIN;
	while (poll(&wait, 1, -1) == 1 && (n = read(fd, buffer, sizeof buffer)) > 0)
		for (ssize_t i = 0; i < n; i++, got++)
			if (buffer[i] != (char)(got % 251)) {
				printf("byte %zu is another\n", got);
				exit(1);
			}
	if (n < 0)
		fail("read");
	if (got != len) {
		printf("%zu bytes came\n", got);
		exit(1);
	}
}

/* As many clients have it: a time limit for the connection, then blocking calls, for which `poll` has
 * to say the truth. */
static void blocking_again(int by_ioctl)
{
	int fd = stream(SOCK_NONBLOCK), error, off = 0;
	socklen_t len = sizeof error;
	struct pollfd wait = { .fd = fd, .events = POLLOUT };
	if (attempt(fd) == 0 || errno != EINPROGRESS)
		fail("connect");
	if (poll(&wait, 1, -1) != 1 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		fail("poll");
	if ((errno = error) != 0)
		fail("SO_ERROR");
	if (by_ioctl ? ioctl(fd, FIONBIO, &off) : fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK))
		fail("blocking mode");
	wait.events = POLLIN;
	if (poll(&wait, 1, 100) != 0) {
		printf("readable before anything was sent\n");
		exit(1);
	}
	echo(fd, 5);
	check_peer(fd);
}

/* What a failure looks like, from where a program may look for it. */
static void failure(const char *from)
{
	int fd = stream(strcmp(from, "connect") ? SOCK_NONBLOCK : 0), error;
	socklen_t len = sizeof error;
	char byte = 0;
	int asks = !strcmp(from, "writable, again");
	struct pollfd wait = { .fd = fd, .events = asks ? POLLOUT : POLLIN | POLLRDHUP };
	if (attempt(fd) == 0) {
		printf("connected\n");
		exit(1);
	}
	if (!strcmp(from, "connect"))
		fail("connect");
	if (errno != EINPROGRESS)
		fail("at once");
	/* The answer wakes it; whatever it was woken by before is not its business. */
	if (poll(&wait, 1, -1) != 1)
		fail("poll");
	if (!strcmp(from, "SO_ERROR")) {
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && (errno = error) != 0)
			fail("SO_ERROR");
	} else if (!strcmp(from, "read") && read(fd, &byte, 1) < 0) {
		fail("read");
	} else if (!strcmp(from, "write") && write(fd, &byte, 1) < 0) {
		fail("write");
	} else if ((asks || !strcmp(from, "again")) && attempt(fd) < 0) {
		fail(from);
	} else if (!strcmp(from, "getpeername") && getpeername(fd, (struct sockaddr *)&target, &len) < 0) {
		if (errno == ENOTCONN && read(fd, &byte, 1) < 0)
			fail("getpeername");
	}
	printf("no failure\n");
	exit(1);
}

/* Asks by connect how connect went, as some do; the stream is not touched by it. */
static void twice(void)
{
	int fd = connected();
	if (attempt(fd) == 0 || errno != EISCONN)
		fail("connect of a connected socket");
	echo(fd, 1);
	fd = stream(SOCK_NONBLOCK);
	struct pollfd wait = { .fd = fd, .events = POLLOUT };
	if (attempt(fd) == 0 || errno != EINPROGRESS)
		fail("connect");
	if (poll(&wait, 1, -1) != 1)
		fail("poll");
	if (attempt(fd) < 0)
		fail("connect once writable");
	if (attempt(fd) == 0 || errno != EISCONN)
		fail("connect once more");
	fcntl(fd, F_SETFL, 0);
	echo(fd, 2);
}

static void note(int number)
{
	static const char line[] = "a signal came\n";
	(void)number;
	if (write(2, line, sizeof line - 1) < 0)
		_exit(1);
}

/* A signal comes while it connects. */
static void signals(int flags)
{
	struct sigaction action = { .sa_handler = note, .sa_flags = flags };
	if (sigaction(SIGUSR1, &action, NULL) < 0)
		fail("sigaction");
	echo(connected(), 6);
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	target.sin_family = AF_INET;
	target.sin_port = htons(atoi(argv[2]));
	inet_pton(AF_INET, argv[1], &target.sin_addr);
	const char *mode = argv[3], *word = argc > 4 ? argv[4] : "";
	if (!strcmp(mode, "echo")) {
		int fd = connected();
		check_peer(fd);
		echo(fd, 0);
	} else if (!strcmp(mode, "family")) {
		family(argv);
	} else if (!strcmp(mode, "inherited")) {
		check_peer(atoi(word));
		echo(atoi(word), 3);
		return 0;
	} else if (!strcmp(mode, "speaks")) {
		edges(1, atoi(word));
	} else if (!strcmp(mode, "sends-file")) {
		send_file(atoi(word));
	} else if (!strcmp(mode, "listens")) {
		edges(0, atoi(word));
	} else if (!strcmp(mode, "blocking-again")) {
		blocking_again(!strcmp(word, "ioctl"));
	} else if (!strcmp(mode, "twice")) {
		twice();
	} else if (!strcmp(mode, "signals")) {
		signals(strcmp(word, "restart") ? 0 : SA_RESTART);
	} else if (!strcmp(mode, "failure")) {
		failure(word);
	} else {
		return 2;
	}
	printf("done\n");
	return 0;
}
