//! `longhaul lab`.

pub mod args;
mod check;
mod experiments;
mod path;
mod peers;
mod summary;

use std::process::ExitCode;

use longhaul_lab::{Builtin, Cleaned, TestbedError, clean_up};
use longhaul_sys::netns::become_root_of_own;

use self::args::{LabArgs, LabCommand};
use crate::failure::Failure;
use crate::output::Output;

/// The exit status is that of the command that was run, where one was.
pub(crate) fn run(args: &LabArgs, output: &Output) -> Result<ExitCode, Failure> {
    longhaul_peers::run_this_executable()
        .map_err(|error| Failure::failed(format!("cannot find this program: {error}")))?;
    match &args.command {
        LabCommand::List(args) => experiments::list(args, output).map(|()| ExitCode::SUCCESS),
        LabCommand::Run(args) => experiments::run_all(args, output),
        LabCommand::Report(args) => experiments::report(args, output).map(|()| ExitCode::SUCCESS),
        LabCommand::Path(args) => path::run(args, output),
        LabCommand::Check(args) => check::run(args, output).map(|()| ExitCode::SUCCESS),
        LabCommand::Peers(args) => peers::run(args, output).map(|()| ExitCode::SUCCESS),
        LabCommand::Topologies { name } => {
            topologies(name.as_deref(), output).map(|()| ExitCode::SUCCESS)
        }
    }
}

fn topologies(name: Option<&str>, output: &Output) -> Result<(), Failure> {
    let Some(name) = name else {
        let all = Builtin::ALL.map(|builtin| builtin.topology());
        let lines = all.iter().map(|topology| format!("{:<18} {}", topology.name, topology.about));
        let json = all
            .iter()
            .map(|topology| serde_json::json!({ "name": topology.name, "about": topology.about }));
        let json = serde_json::json!({ "topologies": json.collect::<Vec<_>>() });
        return output.result(&json, lines.collect::<Vec<_>>().join("\n"));
    };
    let builtin = Builtin::find(name).ok_or_else(|| unknown(name))?;
    output.result(&serde_json::json!({ "name": name, "toml": builtin.text() }), builtin.text())
}

fn unknown(name: &str) -> Failure {
    let known = Builtin::ALL.map(|builtin| builtin.name).join(", ");
    Failure::usage(format!("no topology is called {name}; known are {known}"))
}

/// Takes the privileges that testbeds need, and removes what killed ones left. Before any thread.
pub(crate) fn prepare(output: &Output) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        become_root_of_own().map_err(|error| {
            Failure::failed(format!(
                "cannot make a user namespace: {error}\nRun as root, or allow user namespaces \
                 (sysctl user.max_user_namespaces; on Ubuntu also \
                 kernel.apparmor_restrict_unprivileged_userns=0)"
            ))
        })?;
    }
    let cleaned = clean_up()
        .map_err(|error| Failure::failed(format!("cannot look for leftovers: {error}")))?;
    if cleaned != Cleaned::default() {
        output.say(format!(
            "removed what a killed lab had left: {} processes, {} namespaces, {} control groups, \
             {} folders, {} disks",
            cleaned.processes, cleaned.names, cleaned.groups, cleaned.folders, cleaned.disks
        ));
    }
    Ok(())
}

/// Wrong topologies are the user's fault, the rest is not.
pub(crate) fn cannot_build(error: TestbedError) -> Failure {
    match error {
        TestbedError::Topology(error) => Failure::usage(error.to_string()),
        TestbedError::NoHtb(_) => Failure::failed(error.to_string()).adding(WITHOUT_HTB),
        error => Failure::failed(error.to_string()),
    }
}

/// What helps where the kernel has no HTB.
const WITHOUT_HTB: &str = "a link without `line` in its topology has a line of the lab's own";
