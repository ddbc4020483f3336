//! Programs that move files over one connection of the kernel's TCP.

use std::marker::PhantomData;

use longhaul_lab::Testbed;

use crate::contender::{Absent, Contender, ContenderError, Job, Outcome, Presence};
use crate::files::Files;
use crate::session::Session;
use crate::tcp::{control, kernel_has};

/// The part of such a program that is its own.
pub(crate) trait Mover: Send + Sync + 'static {
    /// Its name, which means CUBIC, and the same with BBR behind it.
    const USUAL: [&str; 2];
    const ABOUT: &str;
    const PACKAGES: &[&str];
    /// True if it takes [`Job::socket_buffer`].
    const TAKES_BUFFER: bool = false;

    fn presence() -> Result<Presence, Absent>;

    /// Starts its servers, begins, and waits until everything is moved.
    fn transfer(session: &mut Session<'_>, files: &Files) -> Result<(), ContenderError>;
}

/// A mover with a congestion control.
pub(crate) struct OverTcp<M> {
    name: String,
    congestion_control: String,
    mover: PhantomData<M>,
}

impl<M: Mover> OverTcp<M> {
    /// `tar`, which uses CUBIC, or `tar bbr`.
    pub(crate) fn named(name: &str) -> Option<Box<dyn Contender>> {
        let congestion_control = match name.strip_prefix(M::USUAL[0])? {
            "" => "cubic".to_owned(),
            rest => control(rest.strip_prefix(' ')?)?,
        };
        let mover = PhantomData::<M>;
        Some(Box::new(Self { name: name.to_owned(), congestion_control, mover }))
    }
}

impl<M: Mover> Contender for OverTcp<M> {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        format!("{}, {}, from file to file", M::ABOUT, self.congestion_control)
    }

    fn packages(&self) -> &'static [&'static str] {
        M::PACKAGES
    }

    fn presence(&self) -> Result<Presence, Absent> {
        kernel_has(&self.congestion_control)?;
        M::presence()
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, ContenderError> {
        let presence = self.presence()?;
        job.without_rate()?;
        if job.socket_buffer.is_some() && !M::TAKES_BUFFER {
            return Err(ContenderError::unsuitable("it takes no socket buffer"));
        }
        let mut session = Session::new(testbed, job)?;
        session.use_congestion_control(&self.congestion_control)?;
        let files = Files::new(&session)?;
        M::transfer(&mut session, &files)?;
        let account = session.close()?;
        files.check(&self.name)?;
        let congestion_control = Some(self.congestion_control.clone());
        Ok(Outcome { congestion_control, ..account.outcome(presence, job) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tar::Tar;

    #[test]
    fn names_are_read() {
        let about = |name| OverTcp::<Tar>::named(name).map(|contender| contender.about());
        assert_eq!(about("tar").unwrap(), "tar | TCP | tar, cubic, from file to file");
        assert!(about("tar bbr").unwrap().contains("bbr"));
        for wrong in ["", "tarbbr", "tar ", "tar a b", "rsync-ssh"] {
            assert!(about(wrong).is_none(), "{wrong}");
        }
    }
}
