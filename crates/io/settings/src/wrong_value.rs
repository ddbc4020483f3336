use std::fmt;

/// A value that makes no sense, in words for the person who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongValue(String);

impl WrongValue {
    /// `why` stands behind the value or its name.
    pub fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}

impl fmt::Display for WrongValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongValue {}

impl From<WrongValue> for String {
    fn from(wrong: WrongValue) -> Self {
        wrong.0
    }
}

/// A [`WrongValue`] of a text as `format!` makes it.
///
/// ```
/// let wrong = longhaul_settings::wrong_value!("share: {} is more than the whole", 2);
/// assert_eq!(wrong.to_string(), "share: 2 is more than the whole");
/// ```
#[macro_export]
macro_rules! wrong_value {
    ($($words:tt)*) => {
        $crate::WrongValue::new(format_args!($($words)*))
    };
}
