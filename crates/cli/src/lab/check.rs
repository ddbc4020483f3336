//! `longhaul lab check`.

use longhaul_lab::check::{self, CheckError, Row};

use super::args::CheckArgs;
use super::{cannot_build, prepare};
use crate::failure::Failure;
use crate::output::Output;

pub(super) fn run(args: &CheckArgs, output: &Output) -> Result<(), Failure> {
    prepare(output)?;
    let mut seen = |row: &Row| output.say(line(row));
    let rows = check::run(&args.only, &mut seen).map_err(|error| match error {
        CheckError::Unknown(_) => Failure::usage(error.to_string()),
        CheckError::Testbed(error) => cannot_build(error),
        error => Failure::failed(error.to_string()),
    })?;
    let wrong = rows.iter().filter(|row| !row.ok).count();
    let checks = serde_json::to_value(&rows).unwrap_or_default();
    if wrong > 0 {
        let message = format!(
            "{wrong} of {} measurements are off; on a busy machine run it again",
            rows.len()
        );
        let fields = [("checks".to_owned(), checks)].into_iter().collect();
        return Err(Failure::failed(message).with_fields(fields));
    }
    let text = format!("all {} measurements are as expected", rows.len());
    output.result(&serde_json::json!({ "checks": checks }), text)
}

fn line(row: &Row) -> String {
    let verdict = if row.ok { "ok " } else { "OFF" };
    let Row { check, what, expected, measured, .. } = row;
    format!("{verdict}  {check:<10}  {what:<38}  {measured:>16}   (expected {expected})")
}
