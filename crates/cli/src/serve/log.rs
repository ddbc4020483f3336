//! A line for each transfer of a server: for people and their tools, or as JSON.

use std::net::SocketAddr;

use clap::ValueEnum;
use jiff::Timestamp;
use longhaul::TransferAccount;
use longhaul_units::{shown, shown_path};
use serde_json::{Value, json};

use super::outcome::Outcome;
use crate::figures;

/// The form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// `name=value`, with spaces between them; texts are in quotes, as in JSON.
    Text,
    /// An object.
    Json,
}

impl LogFormat {
    /// The line of a transfer that ended at `time`. Nothing that a client says ends it, or is taken for one of its
    /// names: texts are in quotes, and what steers terminals is written out.
    pub(super) fn line(
        self,
        time: Timestamp,
        client: SocketAddr,
        account: &TransferAccount,
        outcome: &Outcome,
    ) -> String {
        self.written(fields(time, client, account, outcome))
    }

    /// The line of a client that was refused at `time`.
    pub(super) fn refused(self, time: Timestamp, client: SocketAddr, reason: &str) -> String {
        self.written(vec![
            ("time", json!(time.to_string())),
            ("client", json!(client.to_string())),
            ("outcome", json!("refused")),
            ("reason", json!(shown(reason))),
        ])
    }

    /// The line for so many of them that are left out.
    pub(super) fn left_out(self, time: Timestamp, count: u64) -> String {
        self.written(vec![
            ("time", json!(time.to_string())),
            ("outcome", json!("refused")),
            ("left_out", json!(count)),
        ])
    }

    fn written(self, fields: Vec<(&'static str, Value)>) -> String {
        match self {
            Self::Json => {
                let object = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
                Value::Object(object.collect()).to_string()
            }
            Self::Text => {
                let words = fields.into_iter().flat_map(|(name, value)| match value {
                    Value::Object(parts) => parts
                        .into_iter()
                        .map(|(part, value)| format!("{name}_{part}={value}"))
                        .collect(),
                    value => vec![format!("{name}={value}")],
                });
                words.collect::<Vec<_>>().join(" ")
            }
        }
    }
}

fn fields(
    time: Timestamp,
    client: SocketAddr,
    account: &TransferAccount,
    outcome: &Outcome,
) -> Vec<(&'static str, Value)> {
    let rate = account.bytes as f64 * 8.0 / account.time.as_secs_f64().max(1e-3);
    let reason = outcome.reason.as_deref().unwrap_or_default();
    vec![
        ("time", json!(time.to_string())),
        ("client", json!(client.to_string())),
        ("key", json!(account.key_id.to_string())),
        ("direction", json!(account.action.name())),
        ("path", json!(shown_path(&account.path))),
        ("bytes", json!(account.bytes)),
        ("seconds", json!(figures::seconds(account.time))),
        ("rate_bps", json!(rate as u64)),
        ("bottleneck", json!(account.bottleneck.to_string())),
        ("lost", figures::lost(&account.lost)),
        ("outcome", json!(outcome.name())),
        ("failed", json!(outcome.failed)),
        ("reason", json!(shown(reason))),
    ]
}

#[cfg(test)]
mod tests {
    use longhaul::{Action, Bottleneck, KeyId, Losses};

    use super::*;

    fn account(path: &[u8]) -> TransferAccount {
        let mut account = TransferAccount::new(KeyId([0xab; 8]), Action::Push, path.to_vec());
        account.bytes = 3_000_000;
        account.time = std::time::Duration::from_secs(2);
        account.bottleneck = Bottleneck::Network;
        account.lost = Losses { random: 7, ..Losses::default() };
        account
    }

    #[test]
    fn a_line_says_who_moved_what_and_how_it_went() {
        let client = "192.0.2.7:4242".parse().unwrap();
        let time = "2027-03-01T22:00:00.5Z".parse().unwrap();
        let done = Outcome { is_whole: true, ..Outcome::default() };
        let line = LogFormat::Text.line(time, client, &account(b"run 17"), &done);
        assert_eq!(
            line,
            "time=\"2027-03-01T22:00:00.5Z\" client=\"192.0.2.7:4242\" key=\"abababababababab\" \
             direction=\"push\" path=\"run 17\" bytes=3000000 seconds=2.0 rate_bps=12000000 \
             bottleneck=\"network\" lost_congestion=0 lost_host=0 lost_random=7 lost_sender=0 \
             lost_socket=0 lost_unknown=0 outcome=\"done\" failed=0 reason=\"\""
        );
    }

    #[test]
    fn no_word_of_a_client_forges_a_line_or_a_field() {
        let client = "192.0.2.7:4242".parse().unwrap();
        let path = b"a\" outcome=\"done\"\ntime=1 \x1b[2J\xff\xc2\x9b \xe2\x80\xae";
        let reason = "gone\r\n{\"outcome\":\"done\"}".to_owned();
        let outcome = Outcome { reason: Some(reason), ..Outcome::default() };
        for format in [LogFormat::Text, LogFormat::Json] {
            let line = format.line(Timestamp::UNIX_EPOCH, client, &account(path), &outcome);
            assert!(!line.contains(char::is_control), "{line}");
            assert_eq!(line, shown(&line), "nothing is left to be written out");
            assert_eq!(line.matches("outcome=\"").count(), usize::from(format == LogFormat::Text));
        }
        let line = LogFormat::Json.line(Timestamp::UNIX_EPOCH, client, &account(path), &outcome);
        let parsed: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(parsed["outcome"], "failed");
        assert!(parsed["path"].as_str().unwrap().starts_with("a\" outcome"));
    }

    #[test]
    fn refused_clients_have_lines_of_the_same_form() {
        let time = Timestamp::UNIX_EPOCH;
        let client = "192.0.2.1:7".parse().unwrap();
        assert_eq!(
            LogFormat::Text.refused(time, client, "wrong\ntoken"),
            "time=\"1970-01-01T00:00:00Z\" client=\"192.0.2.1:7\" outcome=\"refused\" reason=\"wrong\\\\ntoken\""
        );
        let line: Value = serde_json::from_str(&LogFormat::Json.left_out(time, 7)).unwrap();
        assert_eq!((&line["outcome"], &line["left_out"]), (&json!("refused"), &json!(7)));
    }
}
