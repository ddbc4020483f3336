// UDT (libudt, Debian) from memory to memory, with 64 MiB buffers.
//   udt receive PORT              prints the bytes received and the seconds they took
//   udt send HOST PORT BYTES
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <udt/udt.h>

static const int BUFFER = 64 << 20;
static const size_t MEMORY = 256 << 20;
static const int BLOCK = 1 << 20;

static int fail(const char *what) {
    std::fprintf(stderr, "udt: %s: %s\n", what, UDT::getlasterror().getErrorMessage());
    return 1;
}

static UDTSOCKET make() {
    UDTSOCKET s = UDT::socket(AF_INET, SOCK_STREAM, 0);
    int buffer = BUFFER, window = BUFFER / 1400;
    UDT::setsockopt(s, 0, UDT_FC, &window, sizeof window);
    UDT::setsockopt(s, 0, UDT_SNDBUF, &buffer, sizeof buffer);
    UDT::setsockopt(s, 0, UDT_RCVBUF, &buffer, sizeof buffer);
    UDT::setsockopt(s, 0, UDP_SNDBUF, &buffer, sizeof buffer);
    UDT::setsockopt(s, 0, UDP_RCVBUF, &buffer, sizeof buffer);
    return s;
}

static int receive(int port) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    UDTSOCKET listener = make();
    if (UDT::bind(listener, (sockaddr *)&at, sizeof at) == UDT::ERROR) return fail("bind");
    if (UDT::listen(listener, 1) == UDT::ERROR) return fail("listen");
    sockaddr_in from;
    int len = sizeof from;
    UDTSOCKET s = UDT::accept(listener, (sockaddr *)&from, &len);
    if (s == UDT::INVALID_SOCK) return fail("accept");
    std::vector<char> memory(MEMORY, 1);
    auto start = std::chrono::steady_clock::now(), last = start;
    unsigned long long total = 0;
    size_t place = 0;
    for (;;) {
        int got = UDT::recv(s, memory.data() + place, BLOCK, 0);
        if (got == UDT::ERROR || got == 0) break;  // closed by the sender
        if (total == 0) start = std::chrono::steady_clock::now();
        last = std::chrono::steady_clock::now();
        total += got;
        place += got;
        if (place + BLOCK > MEMORY) place = 0;
    }
    std::printf("%llu %.6f\n", total, std::chrono::duration<double>(last - start).count());
    UDT::close(s);
    UDT::close(listener);
    return 0;
}

static int send(const char *host, int port, unsigned long long bytes) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1) {
        std::fprintf(stderr, "udt: %s is no IPv4 address\n", host);
        return 1;
    }
    UDTSOCKET s = make();
    if (UDT::connect(s, (sockaddr *)&to, sizeof to) == UDT::ERROR) return fail("connect");
    std::vector<char> memory(MEMORY, 2);
    size_t place = 0;
    while (bytes > 0) {
        int len = bytes < (unsigned long long)BLOCK ? (int)bytes : BLOCK;
        int sent = UDT::send(s, memory.data() + place, len, 0);
        if (sent == UDT::ERROR) return fail("send");
        bytes -= sent;
        place += sent;
        if (place + BLOCK > MEMORY) place = 0;
    }
    // Closing waits until what was written is acknowledged (UDT_LINGER is on by default).
    UDT::close(s);
    return 0;
}

int main(int argc, char **argv) {
    UDT::startup();
    int status = 2;
    if (argc == 3 && !std::strcmp(argv[1], "receive")) {
        status = receive(std::atoi(argv[2]));
    } else if (argc == 5 && !std::strcmp(argv[1], "send")) {
        status = send(argv[2], std::atoi(argv[3]), std::strtoull(argv[4], nullptr, 10));
    } else {
        std::fprintf(stderr, "usage: udt receive PORT | udt send HOST PORT BYTES\n");
    }
    UDT::cleanup();
    return status;
}
