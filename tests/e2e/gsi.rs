//! GridFTP with the Grid's security (GSI) through gateways: certificates of a test CA on the control channels,
//! and on the data channels, which the Globus XIO driver leads through them.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use longhaul_needs::needs;

use crate::preload::{Route, await_listening};
use crate::program::{Ended, Program};
use crate::test::{Test, limited};
use crate::xio::driver;

#[needs(gridftp, globus_xio, openssl)]
#[test]
fn data_channels_prove_who_they_belong_to_through_gateways_and_are_encrypted_where_asked() {
    limited(|test| {
        make_certificates(test);
        let contents = MARK.repeat(300_000);
        fs::write(test.here("file"), &contents).unwrap();
        // Authenticated alone; encrypted too; on several streams.
        for (words, in_clear) in [
            (&["-p", "1"][..], true),
            (&["-p", "1", "-dcpriv"], false),
            (&["-p", "4", "-dcpriv"], false),
        ] {
            let route = Route::new(test);
            let (tapped, seen) = tap(route.near());
            let via = route.via().replace(&route.near().to_string(), &tapped.to_string());
            let (_source, from) = server(test, &via);
            let (_target, to) = server(test, "nowhere.invalid");
            copy(test, from, to, words).assert_succeeded();
            assert!(fs::read(test.there("copy")).unwrap() == contents);
            let [near, far] = route.counts_of_both();
            assert_eq!(near, far);
            assert!((1..=4).contains(&near[0]) && near[1] > contents.len() as u64, "{near:?}");
            let seen = seen.lock().unwrap();
            assert_eq!(seen.len() as u64, near[0]);
            assert_eq!(seen.iter().any(|bytes| contains(bytes, &MARK)), in_clear);
            for bytes in &*seen {
                // Behind the gateway's header a handshake of TLS begins at once.
                let len = usize::from(u16::from_be_bytes([bytes[6], bytes[7]]));
                assert_eq!((&bytes[..4], &bytes[8 + len..][..2]), (&b"LHGW"[..], &[0x16, 3][..]));
            }
        }
    });
}

/// A test CA, and certificates of it for the servers and for the user, who may be root there.
fn make_certificates(test: &Test) {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", CERTIFICATES]).current_dir(test.path("."));
    Program::spawn(test, &mut command).end().assert_succeeded();
    for secret in ["server.key", "user"] {
        fs::set_permissions(test.path(secret), fs::Permissions::from_mode(0o600)).unwrap();
    }
}

const CERTIFICATES: &str = r#"
openssl req -x509 -newkey rsa:2048 -nodes -subj "/O=Longhaul/CN=ca" -keyout ca.key -out ca.pem
mkdir ca
hash=$(openssl x509 -in ca.pem -noout -hash)
cp ca.pem "ca/$hash.0"
cat > "ca/$hash.signing_policy" <<'END'
access_id_CA X509 '/O=Longhaul/CN=ca'
pos_rights globus CA:sign
cond_subjects globus '"/O=Longhaul/*"'
END
for name in server user; do
    openssl req -newkey rsa:2048 -nodes -subj "/O=Longhaul/CN=$name" -keyout $name.key -out $name.csr
    openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out $name.pem
    cat $name.pem $name.key > $name
done
echo '"/O=Longhaul/CN=user" root' > gridmap
"#;

/// A server that takes nobody without a certificate, and whose data channels go by `via`.
fn server<'t>(test: &'t Test, via: &str) -> (Program<'t>, SocketAddr) {
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = Command::new("globus-gridftp-server");
    command.args(["-dc-whitelist", "tcp,gsi,longhaul", "-dc-default", "tcp,longhaul,gsi"]);
    command.args(["-allow-root", "-threads", "1", "-p", &at.port().to_string()]);
    command.args(["-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1"]);
    command.env("LD_LIBRARY_PATH", driver()).env("LONGHAUL_VIA", via);
    command.env("LONGHAUL_VIA_TOKEN_FILE", test.path("token"));
    command.env("X509_CERT_DIR", test.path("ca")).env("GRIDMAP", test.path("gridmap"));
    command.env("X509_USER_CERT", test.path("server.pem"));
    command.env("X509_USER_KEY", test.path("server.key"));
    let server = Program::spawn(test, &mut command);
    await_listening(at);
    (server, at)
}

/// A copy between two servers, by the user.
fn copy(test: &Test, from: SocketAddr, to: SocketAddr, words: &[&str]) -> Ended {
    let source = format!("gsiftp://{from}{}", test.here("file").display());
    let target = format!("gsiftp://{to}{}", test.there("copy").display());
    let mut copy = Command::new("globus-url-copy");
    copy.args(["-fast", "-s", "/O=Longhaul/CN=server"]).args(words);
    copy.args([&source, &target]);
    copy.env("X509_CERT_DIR", test.path("ca")).env("X509_USER_PROXY", test.path("user"));
    Program::spawn(test, &mut copy).end()
}

/// The bytes that clients sent on each connection.
type Seen = Arc<Mutex<Vec<Vec<u8>>>>;

/// Passes connections on to `to`, and keeps what clients send.
fn tap(to: SocketAddr) -> (SocketAddr, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, seen) = (listener.local_addr().unwrap(), Seen::default());
    let all = seen.clone();
    thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let (client, server) = (client.unwrap(), TcpStream::connect(to).unwrap());
            all.lock().unwrap().push(Vec::new());
            let (back, all) = ([&server, &client].map(|end| end.try_clone().unwrap()), all.clone());
            thread::spawn(move || {
                pass(client, server, |bytes| all.lock().unwrap()[number].extend(bytes))
            });
            let [from, to] = back;
            thread::spawn(move || pass(from, to, |_| ()));
        }
    });
    (at, seen)
}

fn pass(mut from: TcpStream, mut to: TcpStream, keep: impl Fn(&[u8])) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        keep(&buffer[..len]);
        if to.write_all(&buffer[..len]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The file is made of it.
const MARK: [u8; 16] = *b"sixteen in clear";
