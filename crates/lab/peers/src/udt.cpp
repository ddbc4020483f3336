// UDT (libudt, Debian) from memory to memory, or from FILE to FILE, with 64 MiB buffers.
//   udt receive PORT BYTES SOCKET_BUFFER [FILE]          ends when it has them all, or by SIGTERM; prints
//                                                        how many it has
//   udt send HOST PORT BYTES SOCKET_BUFFER RATE [FILE]   RATE in bytes per second, 0 for no limit; prints
//                                                        packets sent, sent again, reported lost
// And a pair of gateways that carry TCP connections over UDT, framed as in Phoebus section 4.4:
//   udt enter HOST PORT NEXT PORT SOCKET_BUFFER RATE     takes TCP connections, each one becomes a UDT one
//   udt leave HOST PORT NEXT PORT SOCKET_BUFFER RATE     takes those of `enter`, each one becomes a TCP one
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
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

// What a receiver has so far.
static std::atomic<uint64_t> total;

// Only what a handler of a signal may do: UDT's threads go on meanwhile.
static void cut(int) {
    char text[24];
    int at = sizeof text;
    text[--at] = '\n';
    uint64_t left = total;
    do text[--at] = '0' + left % 10;
    while (left /= 10);
    _exit(write(1, text + at, sizeof text - at) < 0);
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
    signal(SIGTERM, cut);
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
    signal(SIGTERM, SIG_IGN);
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

static bool address(const char *host, int port, sockaddr_in *at) {
    *at = {};
    at->sin_family = AF_INET;
    at->sin_port = htons(port);
    if (inet_pton(AF_INET, host, &at->sin_addr) == 1) return true;
    std::fprintf(stderr, "udt: %s is no IPv4 address\n", host);
    return false;
}

// A frame's header: type, direction, length of the payload.
static const int HEADER = 6;
enum { DATA = 0, SHUTDOWN = 1 };

static bool send_all(UDTSOCKET to, const char *bytes, int left) {
    while (left > 0) {
        int sent = UDT::send(to, bytes, left, 0);
        if (sent == UDT::ERROR) return false;
        bytes += sent;
        left -= sent;
    }
    return true;
}

static bool receive_all(UDTSOCKET from, char *bytes, int left) {
    while (left > 0) {
        int got = UDT::recv(from, bytes, left, 0);
        if (got == UDT::ERROR || got == 0) return false;
        bytes += got;
        left -= got;
    }
    return true;
}

static bool tcp_to_udt(int from, UDTSOCKET to) {
    std::vector<char> frame(HEADER + BLOCK);
    for (;;) {
        ssize_t got = read(from, frame.data() + HEADER, BLOCK);
        if (got < 0) return false;
        uint32_t length = htonl((uint32_t)got);
        frame[0] = got > 0 ? DATA : SHUTDOWN;
        // Of a shutdown: its sender writes no more.
        frame[1] = got > 0 ? 0 : 1;
        std::memcpy(frame.data() + 2, &length, sizeof length);
        if (!send_all(to, frame.data(), HEADER + (int)got)) return false;
        if (got == 0) return true;
    }
}

static bool udt_to_tcp(UDTSOCKET from, int to) {
    std::vector<char> payload(BLOCK);
    for (;;) {
        char header[HEADER];
        uint32_t length;
        if (!receive_all(from, header, HEADER)) return false;
        std::memcpy(&length, header + 2, sizeof length);
        length = ntohl(length);
        if (header[0] == SHUTDOWN) return shutdown(to, SHUT_WR) == 0;
        if (header[0] != DATA || length > payload.size()) return false;
        if (!receive_all(from, payload.data(), (int)length)) return false;
        for (uint32_t written = 0; written < length;) {
            ssize_t more = write(to, payload.data() + written, length - written);
            if (more < 0) return false;
            written += more;
        }
    }
}

// Until both directions have ended; what did not end well is a reset at the TCP end.
static void join(int tcp, UDTSOCKET udt) {
    int one = 1;
    setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    bool there = false;
    auto broken = [&] {
        linger reset = {1, 0};
        setsockopt(tcp, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        shutdown(tcp, SHUT_RDWR);
        UDT::close(udt);
    };
    std::thread other([&] {
        if (!(there = tcp_to_udt(tcp, udt))) broken();
    });
    bool back = udt_to_tcp(udt, tcp);
    if (!back) broken();
    other.join();
    if (there && back) UDT::close(udt);
    close(tcp);
}

static int enter(const sockaddr_in &at, const sockaddr_in &next, int socket_buffer, int64_t rate) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (const sockaddr *)&at, sizeof at) < 0) return system_failed("udt: bind");
    if (listen(listener, 128) < 0) return system_failed("udt: listen");
    for (;;) {
        int tcp = accept(listener, nullptr, nullptr);
        if (tcp < 0) return system_failed("udt: accept");
        std::thread([=] {
            UDTSOCKET udt = make(socket_buffer, rate);
            if (UDT::connect(udt, (const sockaddr *)&next, sizeof next) == UDT::ERROR) {
                fail("connect");
                close(tcp);
            } else {
                join(tcp, udt);
            }
        }).detach();
    }
}

static int leave(const sockaddr_in &at, const sockaddr_in &next, int socket_buffer, int64_t rate) {
    UDTSOCKET listener = make(socket_buffer, rate);
    if (UDT::bind(listener, (const sockaddr *)&at, sizeof at) == UDT::ERROR) return fail("bind");
    if (UDT::listen(listener, 128) == UDT::ERROR) return fail("listen");
    for (;;) {
        sockaddr_in from;
        int len = sizeof from;
        UDTSOCKET udt = UDT::accept(listener, (sockaddr *)&from, &len);
        if (udt == UDT::INVALID_SOCK) return fail("accept");
        std::thread([=] {
            int tcp = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(tcp, (const sockaddr *)&next, sizeof next) < 0) {
                system_failed("udt: connect");
                close(tcp);
                UDT::close(udt);
            } else {
                join(tcp, udt);
            }
        }).detach();
    }
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
    } else if (argc == 8 && (!std::strcmp(argv[1], "enter") || !std::strcmp(argv[1], "leave"))) {
        sockaddr_in at, next;
        if (!address(argv[2], (int)number(3), &at) || !address(argv[4], (int)number(5), &next))
            return status;
        signal(SIGPIPE, SIG_IGN);
        auto gateway = argv[1][0] == 'e' ? enter : leave;
        status = gateway(at, next, (int)number(6), number(7));
    } else {
        std::fprintf(stderr,
                     "usage: udt receive PORT BYTES SOCKET_BUFFER [FILE]\n"
                     "       udt send HOST PORT BYTES SOCKET_BUFFER RATE [FILE]\n"
                     "       udt enter|leave HOST PORT NEXT PORT SOCKET_BUFFER RATE\n");
    }
    UDT::cleanup();
    return status;
}
