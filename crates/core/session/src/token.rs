use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use zeroize::Zeroizing;

use crate::role::Role;
use crate::secret::{SessionSecret, equal};

/// 128 random bits whose holder may use a server (docs/protocol.md section 2.3).
///
/// `Display` writes it in full, for handing it over; `Debug` does not. Erased when dropped.
#[derive(Clone)]
pub struct Token(Zeroizing<[u8; 16]>);

impl Token {
    /// The token of 16 bytes, which must come from a random generator fit for keys.
    pub fn from_random(random: [u8; 16]) -> Self {
        Self(Zeroizing::new(random))
    }

    /// The part of the token that the handshake uses.
    pub fn key(&self) -> TokenKey {
        let mut id = [0; 8];
        let derived = blake3::derive_key("longhaul/1 token id", &*self.0);
        id.copy_from_slice(&derived[..8]);
        let verifier = blake3::derive_key("longhaul/1 token verifier", &*self.0);
        TokenKey { id: KeyId(id), verifier: Zeroizing::new(verifier) }
    }

    fn checksum(&self) -> [u8; CHECKSUM_LEN] {
        let mut checksum = [0; CHECKSUM_LEN];
        let derived = blake3::derive_key("longhaul/1 token checksum", &*self.0);
        checksum.copy_from_slice(&derived[..CHECKSUM_LEN]);
        checksum
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Zeroizing::new([0; TOKEN_LEN]);
        bytes[..16].copy_from_slice(&*self.0);
        bytes[16..].copy_from_slice(&self.checksum());
        f.write_str(PREFIX)?;
        // Five bytes make eight letters.
        let (groups, _) = bytes.as_chunks::<5>();
        for group in groups {
            let bits = group.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
            for place in (0..8).rev() {
                let digit = (bits >> (5 * place)) as usize % 32;
                fmt::Write::write_char(f, char::from(ALPHABET[digit]))?;
            }
        }
        Ok(())
    }
}

impl FromStr for Token {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let letters = text.strip_prefix(PREFIX).ok_or(ParseTokenError::Malformed)?.as_bytes();
        let mut bytes = Zeroizing::new([0; TOKEN_LEN]);
        let (groups, rest) = letters.as_chunks::<8>();
        if groups.len() * 5 != TOKEN_LEN || !rest.is_empty() {
            return Err(ParseTokenError::Malformed);
        }
        for (group, place) in groups.iter().zip(bytes.chunks_exact_mut(5)) {
            let mut bits = 0u64;
            for letter in group {
                let digit = ALPHABET.iter().position(|other| other == letter);
                bits = bits << 5 | digit.ok_or(ParseTokenError::Malformed)? as u64;
            }
            place.copy_from_slice(&bits.to_be_bytes()[3..]);
        }
        let mut random = [0; 16];
        random.copy_from_slice(&bytes[..16]);
        let token = Self::from_random(random);
        if token.checksum() != bytes[16..] {
            return Err(ParseTokenError::Checksum);
        }
        Ok(token)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:?})", self.key().id)
    }
}

/// Why a text is not a token. The text is not repeated, for it may be most of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseTokenError {
    /// Not of the form of a token.
    #[error("not a token: expected lh1- and 32 letters a-z and digits 2-7")]
    Malformed,
    /// Of the right form, but with a wrong letter somewhere.
    #[error("the token is mistyped: its checksum does not match")]
    Checksum,
}

/// Names a token without revealing it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub [u8; 8]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The part of a [`Token`] that the handshake uses. Erased when dropped.
#[derive(Clone)]
pub struct TokenKey {
    id: KeyId,
    verifier: Zeroizing<[u8; 32]>,
}

impl TokenKey {
    /// Names the token.
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// The proof that its maker holds the token, over `parts` in a row. `label` separates uses:
    /// none may be the beginning of another.
    pub fn prove(&self, label: &str, parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.verifier);
        hasher.update(label.as_bytes());
        parts.iter().for_each(|part| {
            hasher.update(part);
        });
        *hasher.finalize().as_bytes()
    }

    /// True where `proof` is what [`Self::prove`] returns, in constant time.
    pub fn check(&self, proof: &[u8; 32], label: &str, parts: &[&[u8]]) -> bool {
        equal(proof, &self.prove(label, parts))
    }

    /// The proof that `role` holds the token, on the connection with this secret. `transcript` is
    /// empty for the client, the body of HELLO for the server.
    pub(crate) fn proof(&self, role: Role, secret: &SessionSecret, transcript: &[u8]) -> [u8; 32] {
        self.prove(PROOF_LABEL, &[role.label(), &[0], secret.bytes(), transcript])
    }

    /// True if `proof` is what [`Self::proof`] returns, in constant time.
    pub(crate) fn verify(
        &self,
        proof: &[u8; 32],
        role: Role,
        secret: &SessionSecret,
        transcript: &[u8],
    ) -> bool {
        equal(proof, &self.proof(role, secret, transcript))
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKey({:?})", self.id)
    }
}

/// The tokens that a server accepts.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    keys: BTreeMap<KeyId, TokenKey>,
}

impl Keyring {
    /// Accepts `token` too.
    pub fn insert(&mut self, token: &Token) {
        let key = token.key();
        self.keys.insert(key.id, key);
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if no token is accepted.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key with this id if `proof` proves that its maker holds it (see [`TokenKey::prove`]). An
    /// unknown id takes as long as a wrong proof.
    pub fn verify(
        &self,
        id: KeyId,
        proof: &[u8; 32],
        label: &str,
        parts: &[&[u8]],
    ) -> Option<&TokenKey> {
        let Some(key) = self.keys.get(&id) else {
            let nobody = TokenKey { id, verifier: Zeroizing::new([0; 32]) };
            nobody.check(proof, label, parts);
            return None;
        };
        key.check(proof, label, parts).then_some(key)
    }

    /// The key with this id if `proof` is that of a client on the connection with this secret.
    pub(crate) fn verify_client(
        &self,
        id: KeyId,
        proof: &[u8; 32],
        secret: &SessionSecret,
    ) -> Option<&TokenKey> {
        self.verify(id, proof, PROOF_LABEL, &[Role::Client.label(), &[0], secret.bytes()])
    }
}

impl<'a> FromIterator<&'a Token> for Keyring {
    fn from_iter<T: IntoIterator<Item = &'a Token>>(tokens: T) -> Self {
        let mut keyring = Self::default();
        tokens.into_iter().for_each(|token| keyring.insert(token));
        keyring
    }
}

/// The tokens of a token file: one a line, with or without a comment behind it. What follows `#`
/// is a comment; empty lines are skipped.
///
/// # Errors
/// A line is neither a token nor empty.
pub fn parse_token_file(text: &str) -> Result<Vec<Token>, TokenFileError> {
    let mut tokens = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let token = line.split('#').next().unwrap_or_default().trim();
        if !token.is_empty() {
            let at = |error| TokenFileError { line: i + 1, error };
            tokens.push(token.parse().map_err(at)?);
        }
    }
    Ok(tokens)
}

/// A line of a token file is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct TokenFileError {
    /// Number of the line, counted from 1.
    pub line: usize,
    /// The fault in it.
    pub error: ParseTokenError,
}

const PROOF_LABEL: &str = "longhaul/1 proof ";
const PREFIX: &str = "lh1-";
/// Lower-case base32 of RFC 4648.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const CHECKSUM_LEN: usize = 4;
const TOKEN_LEN: usize = 16 + CHECKSUM_LEN;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn text_form() {
        let text = Token::from_random([0; 16]).to_string();
        assert_eq!(text.len(), 36);
        // 16 zero bytes are 25 letters and 3 bits; the checksum begins in the 26th letter.
        assert!(text.starts_with("lh1-aaaaaaaaaaaaaaaaaaaaaaaaa"), "{text}");
        assert_eq!(
            text.parse::<Token>().unwrap().key().id(),
            Token::from_random([0; 16]).key().id()
        );
    }

    #[test]
    fn mistyped_tokens() {
        let text = Token::from_random([0x5c; 16]).to_string();
        for i in 4..text.len() {
            let mut letters = text.clone().into_bytes();
            letters[i] = if letters[i] == b'q' { b'r' } else { b'q' };
            let wrong = core::str::from_utf8(&letters).unwrap();
            assert_eq!(wrong.parse::<Token>().unwrap_err(), ParseTokenError::Checksum);
        }
        for wrong in
            ["", "lh1-", "lh2-aaaa", &text[..35], &format!("{text}a"), &text.to_uppercase()]
        {
            assert_eq!(wrong.parse::<Token>().unwrap_err(), ParseTokenError::Malformed, "{wrong}");
        }
        let wrong = text.replace(|c: char| c.is_ascii_digit() && c != '1', "8");
        assert!(wrong.parse::<Token>().is_err());
    }

    #[test]
    fn secrets_are_not_shown() {
        let token = Token::from_random([0x5c; 16]);
        let secret = token.to_string();
        let keyring: Keyring = [&token].into_iter().collect();
        for shown in [
            format!("{token:?}"),
            format!("{:?}", token.key()),
            format!("{keyring:?}"),
            format!("{:?}", SessionSecret::new([0x5c; 32])),
        ] {
            assert!(!shown.contains(&secret[4..12]), "{shown}");
            assert!(!shown.contains("5c5c") && !shown.contains("92, 92"), "{shown}");
        }
    }

    #[test]
    fn token_files() {
        let (one, two) = (Token::from_random([1; 16]), Token::from_random([2; 16]));
        let text = format!("# ours\n\n{one}\r\n  {two} # the laptop\n#{one}\n");
        let ids: Vec<KeyId> =
            parse_token_file(&text).unwrap().iter().map(|token| token.key().id()).collect();
        assert_eq!(ids, [one.key().id(), two.key().id()]);
        let error = parse_token_file(&format!("{one}\n\nlh1-oops\n")).unwrap_err();
        assert_eq!(error, TokenFileError { line: 3, error: ParseTokenError::Malformed });
        assert!(error.to_string().starts_with("line 3: not a token"));
        assert!(parse_token_file(&format!("{one} {two}")).is_err());
        assert!(parse_token_file("").unwrap().is_empty());
    }

    #[test]
    fn proofs_are_bound_to_everything() {
        let key = Token::from_random([1; 16]).key();
        let secret = SessionSecret::new([2; 32]);
        let proof = key.proof(Role::Client, &secret, b"");
        assert!(key.verify(&proof, Role::Client, &secret, b""));
        assert!(!key.verify(&proof, Role::Server, &secret, b""));
        assert!(!key.verify(&proof, Role::Client, &SessionSecret::new([3; 32]), b""));
        assert!(!key.verify(&proof, Role::Client, &secret, b"x"));
        assert!(!Token::from_random([9; 16]).key().verify(&proof, Role::Client, &secret, b""));
        for bit in 0..256 {
            let mut wrong = proof;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.verify(&wrong, Role::Client, &secret, b""));
        }
    }

    #[test]
    fn nobody_is_not_a_key() {
        let secret = SessionSecret::new([2; 32]);
        let nobody = TokenKey { id: KeyId([5; 8]), verifier: Zeroizing::new([0; 32]) };
        let proof = nobody.proof(Role::Client, &secret, b"");
        assert!(Keyring::default().verify_client(nobody.id, &proof, &secret).is_none());
    }

    proptest! {
        #[test]
        fn round_trip(random: [u8; 16]) {
            let token: Token = Token::from_random(random).to_string().parse().unwrap();
            prop_assert_eq!(*token.0, random);
        }

        #[test]
        fn any_text(text in "\\PC{0,40}", tail in "[a-z2-7]{32}") {
            let _ = text.parse::<Token>();
            let _ = parse_token_file(&text);
            let _ = format!("lh1-{tail}").parse::<Token>();
        }
    }
}
