//! Programs that checks need beside cargo: used where they are installed, else built or unpacked below
//! `target/tools`, so that no check is left out and nobody's machine is changed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{command, toml};

/// `cargo deny`.
pub fn deny(root: &Path) -> Result<PathBuf> {
    installed(root, "cargo-deny", "0.20.2")
}

/// `cargo deb`.
pub fn deb(root: &Path) -> Result<PathBuf> {
    installed(root, "cargo-deb", "3.8.0")
}

/// `cargo fuzz`.
pub fn fuzz(root: &Path) -> Result<PathBuf> {
    installed(root, "cargo-fuzz", "0.13.2")
}

/// A subcommand of cargo: the one in PATH, else this version, compiled once.
fn installed(root: &Path, name: &str, version: &str) -> Result<PathBuf> {
    if command::succeeds(Command::new(name).arg("--version")) {
        return Ok(name.into());
    }
    let folder = folder(root);
    let program = folder.join("bin").join(name);
    if !command::succeeds(Command::new(&program).arg("--version")) {
        println!("compiling {name}, once, into {}", folder.display());
        let mut install = command::cargo(root);
        // It has little to do: compiling it is what takes time.
        install.args(["install", "--quiet", "--locked", "--debug", "--version", version, "--root"]);
        command::pass(install.arg(&folder).arg(name))?;
    }
    Ok(program)
}

/// A compiler that has the sources of its libraries.
pub struct Compiler {
    program: PathBuf,
    libraries: Option<PathBuf>,
}

impl Compiler {
    /// rustup's where it has the component `rust-src`, else Debian's, unpacked.
    pub fn with_sources(root: &Path) -> Result<Self> {
        let mut sysroot = Command::new("rustc");
        let sysroot = command::output(sysroot.args(["--print", "sysroot"]).current_dir(root))?;
        if Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core").is_dir() {
            return Ok(Self { program: "rustc".into(), libraries: None });
        }
        let folder = folder(root).join("rust");
        let libraries = format!("root/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        let own = Self {
            program: folder.join("root/usr/bin/rustc"),
            libraries: Some(folder.join(libraries)),
        };
        let runs = |own: &Self| command::succeeds(own.named(Command::new(&own.program).arg("-V")));
        if !runs(&own) {
            println!("unpacking Debian's compiler with sources, once, into {}", folder.display());
            let named = std::fs::read_to_string(root.join("rust-toolchain.toml"))?;
            let version = toml::value(&named, "toolchain", "channel");
            let (version, _) = version.context("rust-toolchain.toml names no channel")?;
            let mut unpack = Command::new(root.join("xtask/debian-rust.sh"));
            command::pass(unpack.arg(&folder).arg(version))?;
        }
        Ok(own)
    }

    /// Has `command`, cargo or the compiler, use this one, with what only its own sources take.
    pub fn named<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("RUSTC", &self.program).env("RUSTC_BOOTSTRAP", "1");
        command.envs(self.libraries.as_ref().map(|libraries| ("LD_LIBRARY_PATH", libraries)))
    }
}

/// Where they are kept.
fn folder(root: &Path) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root.join(target).join("tools")
}
