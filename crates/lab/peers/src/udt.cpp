// UDT (libudt, Debian) from memory to memory, or from FILE to FILE, with 64 MiB buffers.
//   udt receive PORT BYTES SOCKET_BUFFER [FILE]          ends when it has them all; prints how many it has
//   udt send HOST PORT BYTES SOCKET_BUFFER RATE [FILE]   RATE in bytes per second, 0 for no limit; prints
//                                                        packets sent, sent again, reported lost
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <udt/udt.h>

static const int BUFFER = 64 << 20;
// More than caches hold.
static const size_t MEMORY = 64 << 20;
static const int BLOCK = 1 << 20;

static int fail(const char *what) {
    std::fprintf(stderr, "udt: %s: %s\n", what, UDT::getlasterror().getErrorMessage());
    return 1;
}

static int system_failed(const char *what) {
    std::perror(what);
    return 1;
}

static UDTSOCKET make(int socket_buffer, int64_t rate) {
    UDTSOCKET s = UDT::socket(AF_INET, SOCK_STREAM, 0);
    int buffer = BUFFER, window = BUFFER / 1400;
    UDT::setsockopt(s, 0, UDT_FC, &window, sizeof window);
    UDT::setsockopt(s, 0, UDT_SNDBUF, &buffer, sizeof buffer);
    UDT::setsockopt(s, 0, UDT_RCVBUF, &buffer, sizeof buffer);
    UDT::setsockopt(s, 0, UDP_SNDBUF, &socket_buffer, sizeof socket_buffer);
    UDT::setsockopt(s, 0, UDP_RCVBUF, &socket_buffer, sizeof socket_buffer);
    if (rate > 0) UDT::setsockopt(s, 0, UDT_MAXBW, &rate, sizeof rate);
    return s;
}

// With -1 for no file.
static int receive(int port, uint64_t bytes, int socket_buffer, int file) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    // Before anybody can send: getting it takes time.
    std::vector<char> memory(MEMORY, 1);
    UDTSOCKET listener = make(socket_buffer, 0);
    if (UDT::bind(listener, (sockaddr *)&at, sizeof at) == UDT::ERROR) return fail("bind");
    if (UDT::listen(listener, 1) == UDT::ERROR) return fail("listen");
    sockaddr_in from;
    int len = sizeof from;
    UDTSOCKET s = UDT::accept(listener, (sockaddr *)&from, &len);
    if (s == UDT::INVALID_SOCK) return fail("accept");
    uint64_t total = 0;
    size_t place = 0;
    while (total < bytes) {
        int got = UDT::recv(s, memory.data() + place, BLOCK, 0);
        if (got == UDT::ERROR || got == 0) return fail("receive");
        for (int written = 0; file >= 0 && written < got;) {
            ssize_t more = write(file, memory.data() + place + written, got - written);
            if (more < 0) return system_failed("udt: write");
            written += more;
        }
        total += got;
        place += got;
        if (place + BLOCK > MEMORY) place = 0;
    }
    std::printf("%llu\n", (unsigned long long)total);
    UDT::close(s);
    UDT::close(listener);
    return 0;
}

// With -1 for no file.
static int send(const char *host, int port, uint64_t bytes, int socket_buffer, int64_t rate,
                int file) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1) {
        std::fprintf(stderr, "udt: %s is no IPv4 address\n", host);
        return 1;
    }
    UDTSOCKET s = make(socket_buffer, rate);
    if (UDT::connect(s, (sockaddr *)&to, sizeof to) == UDT::ERROR) return fail("connect");
    std::vector<char> memory(MEMORY, 2);
    size_t place = 0;
    off_t offset = 0;
    UDT::TRACEINFO trace = {}, now;
    while (bytes > 0) {
        int len = (int)std::min<uint64_t>(bytes, BLOCK);
        // What UDT does not take at once is read again.
        if (file >= 0 && (len = (int)pread(file, memory.data() + place, len, offset)) <= 0)
            return system_failed("udt: read");
        int sent = UDT::send(s, memory.data() + place, len, 0);
        if (sent == UDT::ERROR) return fail("send");
        bytes -= sent;
        offset += sent;
        place += sent;
        if (place + BLOCK > MEMORY) place = 0;
    }
    // Until everything is acknowledged, or the receiver has all of it and has left.
    int left = 1, size = sizeof left;
    while (left > 0 && UDT::getsockstate(s) == CONNECTED) {
        if (UDT::perfmon(s, &now) != UDT::ERROR) trace = now;
        if (UDT::getsockopt(s, 0, UDT_SNDDATA, &left, &size) == UDT::ERROR) break;
        usleep(1000);
    }
    if (UDT::perfmon(s, &now) != UDT::ERROR) trace = now;
    std::printf("%lld %d %d\n", (long long)trace.pktSentTotal, trace.pktRetransTotal,
                trace.pktSndLossTotal);
    UDT::close(s);
    return 0;
}

int main(int argc, char **argv) {
    UDT::startup();
    int status = 2;
    auto number = [&](int at) { return std::strtoll(argv[at], nullptr, 10); };
    // The file is behind so many words.
    auto file = [&](int words, int how) { return argc > words ? open(argv[words], how, 0644) : -1; };
    if ((argc == 5 || argc == 6) && !std::strcmp(argv[1], "receive")) {
        int to = file(5, O_WRONLY | O_CREAT | O_TRUNC);
        if (argc == 6 && to < 0) return system_failed(argv[5]);
        status = receive((int)number(2), number(3), (int)number(4), to);
    } else if ((argc == 7 || argc == 8) && !std::strcmp(argv[1], "send")) {
        int from = file(7, O_RDONLY);
        if (argc == 8 && from < 0) return system_failed(argv[7]);
        status = send(argv[2], (int)number(3), number(4), (int)number(5), number(6), from);
    } else {
        std::fprintf(stderr,
                     "usage: udt receive PORT BYTES SOCKET_BUFFER [FILE]\n"
                     "       udt send HOST PORT BYTES SOCKET_BUFFER RATE [FILE]\n");
    }
    UDT::cleanup();
    return status;
}
