-- As the first version made it.
CREATE TABLE observations (
    peer TEXT NOT NULL,
    local TEXT NOT NULL,
    remote TEXT NOT NULL,
    direction TEXT NOT NULL,
    seen INTEGER NOT NULL,
    rate_bps INTEGER NOT NULL,
    by_path INTEGER NOT NULL,
    rtt_us INTEGER NOT NULL,
    packet INTEGER NOT NULL,
    chance_ppm INTEGER NOT NULL,
    packets INTEGER NOT NULL,
    congestion INTEGER NOT NULL,
    random INTEGER NOT NULL,
    socket INTEGER NOT NULL,
    host INTEGER NOT NULL,
    sender INTEGER NOT NULL,
    unknown INTEGER NOT NULL,
    profile TEXT NOT NULL
) STRICT;
CREATE INDEX of_path ON observations (peer, local, remote, direction, seen);
CREATE INDEX by_time ON observations (seen);
CREATE TABLE leases (
    peer TEXT NOT NULL,
    local TEXT NOT NULL,
    remote TEXT NOT NULL,
    direction TEXT NOT NULL,
    number INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (peer, local, remote, direction)
) STRICT;
CREATE TABLE circuits (
    host TEXT NOT NULL PRIMARY KEY,
    seen INTEGER NOT NULL,
    circuits INTEGER NOT NULL,
    wasted_ppm INTEGER NOT NULL,
    deviation_ppm INTEGER NOT NULL,
    max_rate_bps INTEGER
) STRICT;
INSERT INTO observations VALUES ('a', '192.0.2.1', '192.0.2.7', 'push', 1700000000, 900000000, 1, 100000, 1500, 7, 10000, 0, 3, 0, 0, 0, 0, 'auto');
INSERT INTO observations VALUES ('192.0.2.7', '192.0.2.1', '192.0.2.7', 'pull', 1700000000, 5, 1, 100000, 1500, 7, 10000, 0, 3, 0, 0, 0, 0, 'auto');
INSERT INTO leases VALUES ('a', '192.0.2.1', '192.0.2.7', 'push', 1, 1700000050);
INSERT INTO circuits VALUES ('dtn', 1700000000, 4, 900, 30, 5);
PRAGMA user_version = 1;
