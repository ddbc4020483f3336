//! The few flags that the commands take.

use anyhow::{Context, Result, bail};

/// Arguments not yet consumed. Each flag is taken out by name; [`Arguments::finish`] rejects the
/// rest.
pub struct Arguments(Vec<String>);

impl Arguments {
    pub fn new(arguments: Vec<String>) -> Self {
        Self(arguments)
    }

    /// Takes `flag N` or `flag=N` out; `None` when the flag is absent.
    pub fn number(&mut self, flag: &str) -> Result<Option<u64>> {
        let Some(value) = self.text(flag)? else { return Ok(None) };
        value.parse().map(Some).with_context(|| format!("{flag} {value}: not a whole number"))
    }

    /// Takes `flag VALUE` or `flag=VALUE` out; `None` when the flag is absent.
    pub fn text(&mut self, flag: &str) -> Result<Option<String>> {
        let name = |argument: &String| argument.split('=').next() == Some(flag);
        let Some(at) = self.0.iter().position(name) else {
            return Ok(None);
        };
        let argument = self.0.remove(at);
        match argument.split_once('=') {
            Some((_, value)) => Ok(Some(value.to_owned())),
            None if at < self.0.len() => Ok(Some(self.0.remove(at))),
            None => bail!("{flag} needs a value"),
        }
    }

    /// Takes `flag` out; false when it is absent.
    pub fn flag(&mut self, flag: &str) -> bool {
        let at = self.0.iter().position(|argument| argument == flag);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Fails when something is left that no one asked for.
    pub fn finish(&self) -> Result<()> {
        match self.0.first() {
            None => Ok(()),
            Some(argument) => bail!("unexpected argument `{argument}`; see `cargo xtask help`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Arguments {
        Arguments::new(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn both_spellings_of_a_flag_are_taken_out() {
        let mut arguments = arguments("--seeds 10 --from=7");
        assert_eq!(arguments.number("--from").unwrap(), Some(7));
        assert_eq!(arguments.number("--seeds").unwrap(), Some(10));
        assert_eq!(arguments.number("--seeds").unwrap(), None);
        arguments.finish().unwrap();
    }

    #[test]
    fn a_missing_or_malformed_number_and_a_stranger_are_errors() {
        assert!(arguments("--seeds").number("--seeds").is_err());
        assert!(arguments("--seeds -1").number("--seeds").is_err());
        assert!(arguments("--seed 1").finish().is_err());
    }
}
