//! Options of rsync, scp and rclone that `cp` does not take, each with the sentence that says what to do.

/// The sentence for `option`, which is none of `cp`.
pub(super) fn instead(option: &str) -> Option<String> {
    let row = |option: &str| OPTIONS.iter().find(|(names, _)| names.contains(&option));
    if let Some((_, instead)) = row(option) {
        return Some((*instead).to_owned());
    }
    // What is not there needs not be turned off.
    let off = option.strip_prefix("--no-")?;
    let on = if off.len() == 1 { format!("-{off}") } else { format!("--{off}") };
    row(&on).map(|_| format!("nor is there {on}; leave it out"))
}

/// Options with a value here and none in rsync.
pub(super) const WITH_VALUE: [(&str, &str); 2] = [
    (
        "--stats",
        "takes the time between lines of progress, as in --stats 30s; figures at the end, as of rsync's, are in --json",
    ),
    (
        "--fsync",
        "takes a word: --fsync end, which is so without it, is rsync's; --fsync never leaves it out",
    ),
];

pub(super) const OPTIONS: [(&[&str], &str); 80] = [
    (
        &[
            "-z",
            "--compress",
            "--compress-level",
            "--compress-choice",
            "--compress-threads",
            "--skip-compress",
            "--old-compress",
            "--new-compress",
            "--zc",
            "--zl",
            "--zt",
        ],
        "nothing is compressed; leave it out, or pipe: `zstd -c F | longhaul pipe lh://HOST/NAME`",
    ),
    (&["-C", "--cvs-exclude"], "nothing is compressed, and --exclude leaves names out"),
    (
        &["-i", "--itemize-changes"],
        "-v names what changes, -n what would; an identity of ssh is given with it: -e 'ssh -i FILE'",
    ),
    (
        &["-h", "--human-readable", "--no-human-readable", "--no-h"],
        "people can read sizes always; leave it out (-h alone shows help)",
    ),
    (
        &[
            "--info",
            "--debug",
            "--log-file",
            "--log-file-format",
            "--log-format",
            "--log-level",
            "--out-format",
        ],
        "-v names what changes, --stats 30s shows progress, --json gives an object at the end",
    ),
    (&["--list-only"], "`longhaul ls -l HOST:PATH` lists"),
    (&["--bwlimit"], "the rate is limited by --rate, as in --rate 100Mbps"),
    (
        &["--transfers", "--checkers", "--multi-thread-streams"],
        "the rate is found, and files share it; leave it out (--lanes 2 uses more processors)",
    ),
    (&["--retries", "--low-level-retries"], "a lost connection is dialled again for --retry 5m"),
    (
        &["--timeout", "--contimeout"],
        "a copy that stands still is ended after --stall-timeout 300, a lost connection dialled for --retry 5m",
    ),
    (&["--no-timeout", "--no-contimeout"], "--stall-timeout 0 never ends a copy that stands still"),
    (
        &[
            "--partial-dir",
            "--temp-dir",
            "--delay-updates",
            "--inplace",
            "--append",
            "--append-verify",
        ],
        "a file appears under its name when it is whole, and the same command goes on; leave it out",
    ),
    (
        &["--no-whole-file", "--no-W", "-y", "--fuzzy", "--block-size"],
        "a file that has changed goes whole, with -c the MiB of it that differ; leave it out",
    ),
    (
        &["-B"],
        "a file that has changed goes whole; ssh asks for nothing with -e 'ssh -o BatchMode=yes'",
    ),
    (
        &["--del", "--delete-before", "--delete-during", "--delete-delay", "--delete-after"],
        "--delete deletes, as the last step, if nothing failed; write that",
    ),
    (&["--delete-excluded"], "what --exclude names is not deleted; remove it at the destination"),
    (
        &["--ignore-missing-args", "--delete-missing-args"],
        "a source that is missing fails, and the others are copied; name those that are there",
    ),
    (
        &["--ignore-errors", "--force"],
        "--delete deletes directories too, and nothing where something failed; leave it out",
    ),
    (
        &["-b", "--backup", "--backup-dir", "--suffix"],
        "what is replaced or deleted is not kept; -n names it before",
    ),
    (
        &["--link-dest", "--copy-dest", "--compare-dest"],
        "there is no third directory; `cp -al OLD NEW` at the destination, then a copy onto NEW, shares \
         what has not changed, and its mode, owner and attributes, which a copy mends in both",
    ),
    (&["--remove-source-files"], "sources stay; remove them where the status is 0"),
    (
        &["--size-only", "--modify-window", "-@"],
        "size and time are compared, the time as finely as the destination keeps it; -c compares contents",
    ),
    (
        &["--no-checksum", "--no-c"],
        "size and time are compared where there is no -c; leave both out",
    ),
    (
        &[
            "--existing",
            "--ignore-existing",
            "--ignore-non-existing",
            "--ignore-non-exist",
            "--immutable",
        ],
        "what differs is replaced; -u leaves alone what is newer at the destination, --exclude what it names",
    ),
    (
        &["-x", "--one-file-system"],
        "what is mounted below SRC is copied too; --exclude leaves it out",
    ),
    (
        &["-f", "--filter", "--filter-from", "--include-from"],
        "rules are given by --exclude, --include and --exclude-from FILE, where `+ PATTERN` includes; the first \
         that matches decides",
    ),
    (
        &["-F"],
        "rules in directories are not read; a configuration of ssh is given with it: -e 'ssh -F FILE'",
    ),
    (
        &["--max-size", "--min-size", "--max-age", "--min-age"],
        "`find SRC -type f ... -printf '%P\\0' | longhaul cp -0 --files-from - SRC DST` chooses files",
    ),
    (
        &["--no-recursive", "--no-r", "--no-links", "--no-l"],
        "trees are copied whole, with their links; `find SRC -maxdepth 1 -type f -printf '%P\\0' | longhaul cp -0 \
         --files-from - SRC DST` copies the files in SRC alone",
    ),
    (
        &["-d", "--dirs", "--old-dirs", "--old-d", "--i-d", "-m", "--prune-empty-dirs"],
        "trees are copied whole, empty directories too; --exclude leaves directories out",
    ),
    (
        &["--inc-recursive", "--no-inc-recursive", "--i-r", "--no-i-r"],
        "contents move while the tree is still listed; leave it out",
    ),
    (&["--relative"], PATHS_KEPT),
    (
        &["--no-relative", "--no-R", "--no-implied-dirs"],
        "--files-from keeps paths and makes the directories in them, else SRC goes under its last name; leave it out",
    ),
    (&["--no-from0"], "names of --files-from are lines where there is no -0; leave both out"),
    (
        &["-D", "--devices", "--specials", "--drop-D"],
        "devices, FIFOs and sockets are skipped; leave it out (the program at the other host is --remote-path PATH)",
    ),
    (
        &["--copy-devices", "--write-devices"],
        "devices are skipped; one is piped: `longhaul pipe HOST:NAME </dev/NAME`",
    ),
    (
        &["-k", "--copy-dirlinks", "-K", "--keep-dirlinks", "--safe-links", "--copy-unsafe-links"],
        "links are copied as links, with -L as what they point at; a link at the destination where a \
         directory is to be is in the way, but with --delete",
    ),
    (&["--munge-links"], "links are copied as they are; leave it out"),
    (&["--no-follow"], "links are copied as links where there is no -L; leave both out"),
    (
        &["--confine-root", "--insecure-links"],
        "`longhaul serve --root DIR` lets no client out of DIR, by links either; leave it out",
    ),
    (
        &["-O", "--omit-dir-times"],
        "times are kept always, and no protocol of scp is used; leave it out",
    ),
    (
        &["-J", "--omit-link-times"],
        "times are kept always; a jump host is given with ssh: -e 'ssh -J HOST'",
    ),
    (&["--no-times", "--no-t"], "times are kept always; leave it out"),
    (
        &["--no-perms", "--no-p"],
        "without -a and -A new files have the modes of the source less the umask; -H -X -o -g are parts of -a",
    ),
    (
        &["-E", "--executability", "-U", "--atimes", "-N", "--crtimes"],
        "modes and times of modification are kept, and no other times; leave it out",
    ),
    (
        &["--open-noatime"],
        "files are read as by any program, also for their time of access; leave it out",
    ),
    (
        &["--chmod", "--chown", "--usermap", "--groupmap"],
        "modes are those of the source, with -o and -g its owners; change them there after the copy",
    ),
    (&["--super"], "-o and -g set owners where the destination runs as root; leave it out"),
    (
        &["--fake-super"],
        "owners are set where the destination runs as root, and kept nowhere else; `tar c SRC | longhaul pipe \
         HOST:NAME` keeps them in a file",
    ),
    (&["--copy-as"], "files are those of the user who serves, over ssh USER in USER@HOST:PATH"),
    (
        &["--preallocate"],
        "blocks of files are reserved always, where the file system can; leave it out",
    ),
    (&["--no-sparse", "--no-S"], "holes are not sent, and stay holes; leave it out"),
    (
        &["--rsync-path"],
        "--remote-path PATH is longhaul at the other host, where it is not in PATH",
    ),
    (
        &["-M", "--remote-option"],
        "the other side is set up there, by the options of `longhaul serve`; leave it out",
    ),
    (
        &["--daemon", "--server", "--sender", "--config", "--dparam", "--no-detach"],
        "`longhaul serve` serves, with --config FILE as a file says",
    ),
    (&["--early-input"], "nothing runs at a server before a copy; leave it out"),
    (
        &["-s", "--protect-args", "--secluded-args", "--old-args"],
        "no shell reads paths; leave it out",
    ),
    (
        &["--trust-sender"],
        "names that a server sends are checked always; --merge lets SRC/. into a directory that is not empty",
    ),
    (&["--port"], "the port stands behind its host: ssh://HOST:22/PATH or lh://HOST:7420/PATH"),
    (&["-o"], "options of ssh are given with it: -e 'ssh -o NAME=VALUE'"),
    (
        &["-3"],
        "data goes straight from host to host, or through here where the first does not reach the second; \
         leave it out",
    ),
    (
        &["-4", "--ipv4", "-6", "--ipv6"],
        "an address in place of the name says which: lh://[2001:db8::7]/PATH, or -e 'ssh -6'",
    ),
    (&["--address"], "--link ADDRESS sends from that address of this host"),
    (&["--sockopts"], "sockets are set up as path and rate need it; leave it out"),
    (&["--blocking-io"], "there is nothing to set for the program of -e; leave it out"),
    (&["--password-file"], "the token is in --token-file FILE"),
    (&["--mkpath", "--create-empty-src-dirs"], "a slash behind DST makes it; leave it out"),
    (&["--checksum-choice", "--cc", "--checksum-seed"], "all hashes are BLAKE3; leave it out"),
    (&["--max-alloc"], "--memory SIZE is most memory for data that is under way"),
    (
        &["--write-batch", "--only-write-batch", "--read-batch"],
        "changes are not kept in a file; copy to each destination, -n names what would change",
    ),
    (
        &["--stop-after", "--stop-at", "--time-limit"],
        "`timeout 30m longhaul cp SRC DST` stops it in order, and the same command goes on",
    ),
    (&["--protocol"], "both ends agree on it; leave it out"),
    (&["--iconv"], "names keep their bytes; `convmv` gives them others, before or after the copy"),
    (
        &["--stderr", "--msgs2stderr"],
        "names and JSON are on standard output, all else on standard error; leave it out",
    ),
    (&["--outbuf"], "each line is written at once; leave it out"),
    (
        &["-8", "--8-bit-output"],
        "names in UTF-8 are written as they are, other bytes as \\xff, so that no two look alike; leave it out",
    ),
    (&["--no-motd"], "a server has no message of the day; leave it out"),
    (
        &["--no-progress", "--no-partial"],
        "-q shows no progress; what an interrupted copy keeps is removed by `longhaul resume --discard DST`",
    ),
    (
        &["--no-verbose", "--no-v"],
        "names are shown by -v only, and -q says errors only; leave it out",
    ),
    (&["-V", "--version"], "`longhaul --version` says it"),
];

pub(super) const PATHS_KEPT: &str =
    "--files-from keeps paths: `echo a/b | longhaul cp --files-from - . DST` makes DST/a/b";
