use std::os::unix::fs::PermissionsExt;

use longhaul_pathsim::Probability;
use longhaul_units::{Bytes, Rate};

use super::*;

/// A path as `OtherPath` describes such programs: a veth pair.
const VETH: &str = r#"#!/bin/sh
set -e
ip -n "$1" link add wan0 type veth peer name wan0 netns "$2"
ip -n "$1" addr add 10.78.0.1/24 dev wan0
ip -n "$2" addr add 10.78.0.2/24 dev wan0
ip -n "$1" link set wan0 up
ip -n "$2" link set wan0 up
trap 'echo "A>B: packets $3 lost 2 queue-dropped 1" >&2; exit 0' TERM
echo up
while :; do sleep 0.05; done
"#;

#[needs(root, ip)]
#[test]
fn another_program_carries_the_packets_and_counts_them() {
    let folder = tempfile::tempdir().unwrap();
    let testbed = emulated_by(&program(folder.path(), VETH)).unwrap();
    let (from, to) = testbed.ends();
    let listener = to.run(|| TcpListener::bind((to.ipv4(), 0))).unwrap().unwrap();
    let target = listener.local_addr().unwrap();
    wait_until(|| from.run(|| TcpStream::connect_timeout(&target, PATIENCE)).unwrap().is_ok());
    let (_, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), from.ipv4());
    let counts = testbed.close_other().unwrap();
    assert_eq!(counts, OtherCounts { packets: 20, lost: 2, queue_dropped: 1 });
}

#[needs(root, ip)]
#[test]
fn a_program_that_does_not_come_up_is_named_with_its_words() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "#!/bin/sh\necho 'no such device' >&2\nexit 1\n");
    let error = emulated_by(&program).unwrap_err().to_string();
    assert!(error.contains("/emulator: no such device"), "{error}");
}

fn program(folder: &Path, text: &str) -> std::path::PathBuf {
    let path = folder.join("emulator");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn emulated_by(program: &Path) -> Result<Testbed, TestbedError> {
    let path = OtherPath {
        rtt: Duration::from_millis(20),
        rate: Rate::from_gbps(1),
        queue: Bytes::new(125_000),
        loss: Probability::ZERO,
        seed: 1,
    };
    Testbed::emulated_by(program, &path)
}
