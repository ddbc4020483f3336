//! `-a` and its parts: attributes that `cp` keeps.

use clap::Args;
use longhaul::KeptAttributes;

/// Attributes that are kept beside times and permission bits.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct AttributeArgs {
    /// Keep all of a tree: -H, -A, -X, -o, -g, and modes exactly, set-id and sticky bits with them
    ///
    /// Files are copied without what of it the destination does not hold, or does not let this user set, with one note.
    /// --no-hard-links, --no-acls, --no-xattrs, --no-owner and --no-group leave one out. A server sets owners, set-id bits and
    /// attributes beyond `user.` only with `serve --allow-owners`; without -a files get their modes less the umask.
    #[arg(short = 'a', long, hide_short_help = true, overrides_with = "archive")]
    archive: bool,
    /// Keep hard links: names of one file are that at the destination, too, and it is sent once
    #[arg(short = 'H', long, hide_short_help = true, overrides_with = "no_hard_links")]
    hard_links: bool,
    /// Not them: each name is a file for itself
    #[arg(long, alias = "no-H", hide_short_help = true, overrides_with = "hard_links")]
    no_hard_links: bool,
    /// Copy symbolic links as what they point at: of a pull as far as that is below what is served
    #[arg(
        short = 'L',
        long,
        alias = "copy-links",
        hide_short_help = true,
        overrides_with = "follow"
    )]
    follow: bool,
    /// Keep access lists (POSIX ACLs), with users and groups by name, and modes exactly
    #[arg(short = 'A', long, hide_short_help = true, overrides_with = "no_acls")]
    acls: bool,
    /// Not them
    #[arg(long, alias = "no-A", hide_short_help = true, overrides_with = "acls")]
    no_acls: bool,
    /// Keep extended attributes: those of `user.`, and where both ends run as root all
    #[arg(short = 'X', long, hide_short_help = true, overrides_with = "no_xattrs")]
    xattrs: bool,
    /// Not them
    #[arg(long, alias = "no-X", hide_short_help = true, overrides_with = "xattrs")]
    no_xattrs: bool,
    /// Keep the user that owns, by name: where the destination runs as root
    #[arg(short = 'o', long, hide_short_help = true, overrides_with = "no_owner")]
    owner: bool,
    /// Not it
    #[arg(long, alias = "no-o", hide_short_help = true, overrides_with = "owner")]
    no_owner: bool,
    /// Keep the group that owns, by name: where the destination runs as root, or as a member of it
    #[arg(short = 'g', long, hide_short_help = true, overrides_with = "no_group")]
    group: bool,
    /// Not it
    #[arg(long, alias = "no-g", hide_short_help = true, overrides_with = "group")]
    no_group: bool,
    /// Keep users and groups by their numbers, not by name
    #[arg(long, hide_short_help = true, overrides_with = "no_numeric_ids")]
    numeric_ids: bool,
    /// By name, as without
    #[arg(long, hide_short_help = true, overrides_with = "numeric_ids")]
    no_numeric_ids: bool,
}

impl AttributeArgs {
    /// All that is kept.
    pub(crate) fn kept(self) -> KeptAttributes {
        let all = self.archive;
        let acls = self.acls || all && !self.no_acls;
        KeptAttributes::default()
            .with(KeptAttributes::MODES, all || acls)
            .with(KeptAttributes::HARD_LINKS, self.hard_links || all && !self.no_hard_links)
            .with(KeptAttributes::ACCESS_LISTS, acls)
            .with(KeptAttributes::XATTRS, self.xattrs || all && !self.no_xattrs)
            .with(KeptAttributes::OWNERS, self.owner || all && !self.no_owner)
            .with(KeptAttributes::GROUPS, self.group || all && !self.no_group)
            .with(KeptAttributes::NUMBERS, self.numeric_ids)
            .with(KeptAttributes::FOLLOW, self.follow)
    }

    /// True for `-o`.
    pub(crate) const fn keeps_owners(self) -> bool {
        self.owner
    }

    /// True for `-X`.
    pub(crate) const fn keeps_xattrs(self) -> bool {
        self.xattrs
    }

    /// Attributes that the user declines.
    pub(crate) fn declined(self) -> KeptAttributes {
        KeptAttributes::default()
            .with(KeptAttributes::ACCESS_LISTS, self.no_acls)
            .with(KeptAttributes::XATTRS, self.no_xattrs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        attributes: AttributeArgs,
    }

    #[test]
    fn parts_stand_alone_and_are_left_out_alone() {
        use KeptAttributes as Kept;
        let of = |words: &[&str]| {
            let words = ["cp"].into_iter().chain(words.iter().copied());
            Words::parse_from(words).attributes.kept()
        };
        let all = [Kept::MODES, Kept::ACCESS_LISTS, Kept::XATTRS, Kept::OWNERS, Kept::GROUPS];
        let linked = |kept: Kept| kept.with(Kept::HARD_LINKS, true);
        let sum =
            |parts: &[Kept]| parts.iter().fold(Kept::default(), |sum, part| sum.with(*part, true));
        assert_eq!(of(&[]), Kept::default());
        assert_eq!(of(&["-a"]), linked(sum(&all)));
        assert_eq!(of(&["-a", "--no-H"]), sum(&all));
        assert_eq!(of(&["-H"]), Kept::HARD_LINKS);
        assert_eq!([of(&["-L"]), of(&["--follow"])], [Kept::FOLLOW; 2]);
        let without = of(&["-aH", "--no-A", "--no-xattrs", "--no-hard-links"]);
        assert_eq!(without, sum(&[all[0], all[3], all[4]]));
        assert_eq!(of(&["-a", "--no-o", "-o", "--no-group"]), linked(sum(&all[..4])));
        assert_eq!(of(&["-A"]), sum(&all[..2]));
        assert_eq!(of(&["-Xog"]), sum(&all[2..]));
        assert_eq!(of(&["-o", "--numeric-ids"]), sum(&[Kept::OWNERS, Kept::NUMBERS]));
        let declined = |words: &[&str]| {
            let words = ["cp"].into_iter().chain(words.iter().copied());
            Words::parse_from(words).attributes.declined()
        };
        assert_eq!(declined(&["-aH"]), Kept::default());
        assert_eq!(declined(&["-a", "--no-acls", "--no-X"]), sum(&all[1..3]));
        assert_eq!(declined(&["--no-A", "-A"]), Kept::default());
    }
}
