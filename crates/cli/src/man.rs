//! Manual pages and completions, from the same source as `--help`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use crate::output;

/// Writes a page for each command to a folder, or that of the program to standard output.
pub(crate) fn run(args: &ManArgs) -> Result<(), Failure> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    match &args.folder {
        Some(folder) => fs::create_dir_all(folder)
            .and_then(|()| write_pages(&command, folder))
            .map_err(|error| {
                Failure::failed(format!(
                    "cannot write manual pages to {}: {error}",
                    folder.display()
                ))
            }),
        None => {
            let page =
                page(&command).or_else(|error| output::unwritten(error).map(|()| Vec::new()))?;
            write(&page)
        }
    }
}

/// The page of a command, and those of its commands.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_pages(inner, folder)?;
    }
    let name = Man::new(command.clone()).get_filename();
    fs::write(folder.join(name), page(command)?)
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    // A page is not short: without this, options that are left out of -h would have no words.
    let whole = command.clone().mut_args(|arg| arg.hide_short_help(false));
    Man::new(whole.after_help(None)).render(&mut page)?;
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if let Some(examples) = after.strip_prefix("Examples:\n") {
        let lines: Vec<String> = examples.lines().map(escaped).collect();
        let examples = format!(".SH EXAMPLES\n.nf\n{}\n.fi\n", lines.join("\n"));
        page.extend_from_slice(examples.as_bytes());
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let files: Vec<_> = FILES.iter().filter(|(_, _, of)| of.contains(&name)).collect();
    if !files.is_empty() {
        page.extend_from_slice(b".SH FILES\n");
    }
    for (file, about, _) in files {
        let (file, about) = (escaped(file), escaped(about));
        page.extend_from_slice(format!(".TP\n\\fI{file}\\fR\n{about}\n").as_bytes());
    }
    page.extend_from_slice(b".SH EXIT STATUS\n");
    for (status, about) in statuses(name) {
        let about = escaped(about);
        page.extend_from_slice(format!(".TP\n\\fB{status}\\fR\n{about}\n").as_bytes());
    }
    Ok(page)
}

/// As roff takes it: a line begins with no dot, and signs are signs.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

fn statuses(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "longhaul-lab-path" | "longhaul-gateway-run" => &[
            ("that of the command", "It ran; 128 and the number of the signal where one ended it."),
            ("2", "Used wrongly."),
        ],
        "longhaul-verify" => &[
            ("0", "All is as in the list."),
            ("1", "Something is missing, changed or extra, or could not be compared."),
            ("2", "Used wrongly."),
        ],
        _ => &[
            ("0", "Done; of copies and pipes: and verified, or as --no-verify asked."),
            (
                "1",
                "Failed. What a copy has written is kept, and the same command goes on from there.",
            ),
            ("2", "Used wrongly."),
        ],
    }
}

const AT_CLIENTS: &[&str] = &[
    "longhaul",
    "longhaul-cp",
    "longhaul-pipe",
    "longhaul-ls",
    "longhaul-verify",
    "longhaul-probe",
];
/// Files, what they are, and the commands that have to do with them.
const FILES: [(&str, &str, &[&str]); 6] = [
    (
        "~/.config/longhaul/token",
        "Token of this user, which a server knows, too (longhaul keys new). Below $XDG_CONFIG_HOME where that is set.",
        AT_CLIENTS,
    ),
    (
        "~/.local/state/longhaul/secret",
        "Secret by which this user knows again what a server keeps of an interrupted copy. Below $XDG_STATE_HOME where \
         that is set.",
        &["longhaul", "longhaul-cp"],
    ),
    (
        "~/.local/state/longhaul/history.db",
        "History of paths that this user has sent over.",
        &["longhaul", "longhaul-cp", "longhaul-pipe", "longhaul-serve", "longhaul-history"],
    ),
    (
        ".longhaul-*",
        "Hidden directory in a destination: what a copy has written that is not under its name yet.",
        &["longhaul", "longhaul-cp", "longhaul-resume", "longhaul-serve"],
    ),
    (
        "/etc/longhaul/serve.toml",
        "Settings of the server that the Debian package starts (--config).",
        &["longhaul-serve"],
    ),
    (
        "/etc/longhaul/tokens",
        "Tokens that a server lets in, as its settings name the file.",
        &["longhaul-serve", "longhaul-keys", "longhaul-keys-new"],
    ),
];

/// Writes what a shell needs to complete commands and options, and places at servers by what these list.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "longhaul", &mut script);
    let script = String::from_utf8_lossy(&script);
    let script = match args.shell {
        // It would break names at blanks, which bash completes itself where there is nothing else.
        Shell::Bash => {
            let script = script.replace(r#"COMPREPLY=($(compgen -f "${cur}"))"#, "COMPREPLY=()");
            format!("{script}{BASH_PLACES}")
        }
        // With two colons options behind a source would not be completed.
        Shell::Zsh => {
            script.replacen("_longhaul() {\n", ZSH_PLACES, 1).replace("\n'*::paths ", "\n'*:paths ")
        }
        Shell::Fish => format!("{script}{FISH_PLACES}"),
        _ => script.into_owned(),
    };
    write(script.as_bytes())
}

fn write(bytes: &[u8]) -> Result<(), Failure> {
    output::open()?;
    std::io::stdout().lock().write_all(bytes).or_else(output::unwritten)
}

/// Readline replaces what it takes for the word, which a colon or a quotation mark begins: the second argument. Where
/// that does not begin as an option does, none is meant: files are, or what the command takes there.
const BASH_PLACES: &str = r#"
_longhaul_or_places() {
    local line=${COMP_LINE:0:COMP_POINT} before=${2%"${2##*/}"} name
    COMPREPLY=()
    if [[ $line == *lh://*/* ]]; then
        while IFS= read -r name; do
            COMPREPLY+=("$before$name")
        done < <(longhaul places "$line" 2>/dev/null)
    fi
    if ((${#COMPREPLY[@]})); then
        compopt -o nospace 2>/dev/null
    else
        _longhaul "$@"
        [[ $2 == -* ]] || _longhaul_without_options
    fi
}
_longhaul_without_options() {
    local reply all=("${COMPREPLY[@]}")
    COMPREPLY=()
    for reply in "${all[@]}"; do
        [[ $reply == -* ]] || COMPREPLY+=("$reply")
    done
}
complete -F _longhaul_or_places -o bashdefault -o default longhaul
"#;

const ZSH_PLACES: &str = r#"_longhaul() {
    if [[ $PREFIX == lh://*/* ]]; then
        local line="${(j: :)words[1,CURRENT-1]} $QIPREFIX$PREFIX"
        local -a names
        names=("${(@f)$(longhaul places "$line" 2>/dev/null)}")
        names=(${names:#})
        compadd -Q -U -S '' -- "${PREFIX%/*}/"${^names}
        return
    fi
"#;

const FISH_PLACES: &str = r#"
function __longhaul_word
    set -l word (commandline -ct)
    if string match -rq '^["\']' -- $word
        string sub -s 2 -- $word
    else
        string unescape -- $word
    end
end
function __longhaul_places
    set -l before (__longhaul_word | string replace -r '[^/]*$' '')
    for name in (longhaul places (commandline -cp | string collect) 2>/dev/null)
        printf '%s%s\n' $before $name
    end
end
complete -c longhaul -n "string match -q 'lh://*/*' -- (__longhaul_word)" -f -a "(__longhaul_places)"
"#;
