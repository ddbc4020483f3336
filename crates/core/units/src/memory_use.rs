use crate::registry::registry;

registry! {
    /// Use of the history of a path, with the codes of
    /// docs/protocol.md section 9.3, which says what each means.
    MemoryUse
    #[default]
    0 None "none"
    1 Nothing "nothing known"
    2 Busy "busy"
    3 Ignored "ignored"
    4 Waiting "waiting"
    5 OtherRoundTrip "other round trip"
    6 Unvalidated "unvalidated"
    7 Confirmed "confirmed"
    8 Lower "lower"
    9 Retreated "retreated"
    10 Untested "untested"
    11 Chosen "chosen"
}
