use super::Policy;

/// Lost bytes go again as soon as their loss is known, between fresh ones.
#[derive(Debug)]
pub(super) struct Continuous;

impl Policy for Continuous {}
