//! Release keys: the private half that a mock portal signs its releases with, in a file, from a seed or from chance.
//!
//! A file is one line, the key's 32 secret bytes in base64; lines that begin with `#` say what it is. Its public half is
//! what agents are built with, and what the ready line shows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use portal_core::Settings;
use protocol::hash::Sha256Hex;
use protocol::sign::SigningKey;
use rand::TryRng as _;
use rand::rngs::SysRng;
use zeroize::Zeroizing;

/// A text that is no release key. Does not repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileRefused {
    /// There is no line beside comments.
    #[error(
        "it holds no key: expected one line, 32 secret bytes in base64, as `mock-portal keys make` writes it"
    )]
    Empty,
    /// There is more than one.
    #[error("it holds {0} lines beside comments: expected one, 32 secret bytes in base64")]
    Several(usize),
    /// The line is something else.
    #[error("line {0} is no key: expected 32 secret bytes in base64 with padding")]
    NoKey(usize),
}

/// Reads the text of a key file.
///
/// # Errors
/// When it is no such text.
pub fn read(text: &str) -> Result<SigningKey, KeyFileRefused> {
    let lines: Vec<(usize, &str)> = text
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let (number, line) = match lines.as_slice() {
        [] => return Err(KeyFileRefused::Empty),
        [line] => *line,
        several => return Err(KeyFileRefused::Several(several.len())),
    };
    let bytes = Zeroizing::new(
        BASE64
            .decode(line)
            .map_err(|_| KeyFileRefused::NoKey(number))?,
    );
    let seed: [u8; 32] = bytes
        .as_slice()
        .try_into()
        .map_err(|_| KeyFileRefused::NoKey(number))?;
    Ok(SigningKey::from_seed(seed))
}

/// The text of a key file.
pub fn write(key: &SigningKey) -> Zeroizing<String> {
    let seed = Zeroizing::new(BASE64.encode(*key.seed()));
    let id = key.public().key_id();
    Zeroizing::new(format!(
        "# A mock portal's release key {id}. Secret: it signs releases.\n{}\n",
        *seed
    ))
}

/// A key that nobody can guess.
///
/// # Errors
/// When the system's random source fails.
pub fn new() -> Result<SigningKey, rand::rngs::SysError> {
    let seed = Zeroizing::new(random()?);
    Ok(SigningKey::from_seed(*seed))
}

/// Settings of a portal with a release key and a chance that nobody can guess.
///
/// # Errors
/// When the system's random source fails.
pub fn settings() -> Result<Settings, rand::rngs::SysError> {
    Ok(Settings::new(new()?, random()?))
}

/// Settings of a seed: the same release key, IDs, tokens and boxes in every run. Whoever knows the seed knows them, so
/// they are for tests only.
pub fn settings_of_seed(seed: u64) -> Settings {
    let child = |purpose: &str| {
        *Sha256Hex::of(format!("mock-portal {purpose} {seed}").as_bytes()).as_bytes()
    };
    Settings::new(SigningKey::from_seed(child("release key")), child("chance"))
}

fn random() -> Result<[u8; 32], rand::rngs::SysError> {
    let mut seed = [0; 32];
    SysRng.try_fill_bytes(&mut seed)?;
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let key = new().unwrap();
        assert_eq!(read(&write(&key)).unwrap().public(), key.public());
        assert_ne!(new().unwrap().public(), key.public());
    }

    #[test]
    fn a_seed_is_one_key() {
        let of = |seed| {
            (
                settings_of_seed(seed).release_key.public(),
                settings_of_seed(seed).seed,
            )
        };
        assert_eq!(of(7), of(7));
        assert_ne!(of(7).0, of(8).0);
        assert_ne!(of(7).1, of(8).1);
    }

    #[test]
    fn another_text_says_where_it_is_wrong_and_repeats_nothing() {
        let line = BASE64.encode([7; 32]);
        for (text, refused) in [
            (String::new(), KeyFileRefused::Empty),
            ("# only a comment\n".to_owned(), KeyFileRefused::Empty),
            (format!("{line}\n{line}\n"), KeyFileRefused::Several(2)),
            (
                format!("# a\n\n{}\n", &line[..40]),
                KeyFileRefused::NoKey(3),
            ),
            (line.replace('=', ""), KeyFileRefused::NoKey(1)),
            (BASE64.encode([7; 33]), KeyFileRefused::NoKey(1)),
        ] {
            let error = read(&text).unwrap_err();
            assert_eq!(error, refused, "{text:?}");
            assert!(!error.to_string().contains(&line[..8]), "{error}");
        }
    }
}
