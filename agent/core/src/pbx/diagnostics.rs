//! The bundle of `diag.collect`: a gzipped tar of at most 128 KiB (OP-11).
//!
//! What may be in it is a closed list, so that nothing is in it by mistake: [`Section`] has no file of secrets and no
//! environment, and a host has nothing else to put in. Logs are text that others wrote, so lines that look as if they held
//! a secret are left out, too. Where all of it does not fit, the oldest lines of the longest logs go first, and the result
//! says so.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use protocol::limits::DIAGNOSTICS_BYTES_MAX;
use protocol::pbx::operation::{Bundle, DiagCollectResult};

use crate::machine::LogLine;

/// What a bundle may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// The versions of agent, k3s, kernel and image.
    Versions,
    /// The states of the units of k3s and of the agent.
    Units,
    /// The last lines of k3s's log.
    K3sLog,
    /// The last lines of the agent's log.
    AgentLog,
}

impl Section {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Versions, Self::Units, Self::K3sLog, Self::AgentLog];

    /// Its file in the bundle.
    pub fn file(self) -> &'static str {
        match self {
            Self::Versions => "versions.txt",
            Self::Units => "units.txt",
            Self::K3sLog => "k3s.log",
            Self::AgentLog => "agent.log",
        }
    }
}

/// Lines of one section that are taken at most, the last ones.
pub const SECTION_LINES_MAX: usize = 2_000;

/// What stands where a line was left out.
const LEFT_OUT: &str = "[a line that may hold a secret was left out]";

/// Words that a line with a secret in it has, whatever program wrote it, in lower case.
const SECRET_WORDS: [&str; 9] = [
    "token",
    "secret",
    "password",
    "passwd",
    "authorization",
    "bearer",
    "private key",
    "access-key",
    "access_key",
];

/// A bundle of what the host has collected.
pub fn bundle(collected: impl IntoIterator<Item = (Section, Vec<LogLine>)>) -> DiagCollectResult {
    let mut sections: Vec<(Section, Vec<String>)> = collected
        .into_iter()
        .map(|(section, lines)| (section, lines.into_iter().map(without_secret).collect()))
        .collect();
    let mut truncated = false;
    for (_, lines) in &mut sections {
        let surplus = lines.len().saturating_sub(SECTION_LINES_MAX);
        truncated |= surplus > 0;
        lines.drain(..surplus);
    }
    loop {
        if let Ok(bundle) = Bundle::new(gzip(&tar(&sections))) {
            return DiagCollectResult { bundle, truncated };
        }
        truncated = true;
        let longest = sections.iter_mut().max_by_key(|(_, lines)| lines.len());
        let Some((_, lines)) = longest else {
            unreachable!("no sections at all are smaller than {DIAGNOSTICS_BYTES_MAX} bytes");
        };
        lines.drain(..lines.len().div_ceil(4));
    }
}

fn without_secret(line: LogLine) -> String {
    let lower = line.as_str().to_lowercase();
    // k3s's own tokens begin like that: K10, a hash, two colons.
    let is_k3s_token = line.as_str().contains("K10") && line.as_str().contains("::");
    if is_k3s_token || SECRET_WORDS.iter().any(|word| lower.contains(word)) {
        LEFT_OUT.to_owned()
    } else {
        line.into_string()
    }
}

/// A tar as POSIX has it (ustar): plain files, readable by their owner, from no particular moment.
fn tar(sections: &[(Section, Vec<String>)]) -> Vec<u8> {
    const BLOCK: usize = 512;
    let mut tar = Vec::new();
    for (section, lines) in sections {
        let mut content = lines.join("\n");
        content.push('\n');
        let mut header = [0_u8; BLOCK];
        let mut put =
            |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, section.file());
        put(100, "0000600\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, &format!("{:011o}\0", content.len()));
        put(136, "00000000000\0");
        put(148, "        ");
        put(156, "0");
        put(257, "ustar\0");
        put(263, "00");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend_from_slice(&header);
        tar.extend_from_slice(content.as_bytes());
        tar.resize(tar.len().next_multiple_of(BLOCK), 0);
    }
    tar.resize(tar.len() + 2 * BLOCK, 0);
    tar
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("writing into memory does not fail")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn opened(result: &DiagCollectResult) -> String {
        let mut text = Vec::new();
        let mut decoder = flate2::read::GzDecoder::new(result.bundle.as_bytes());
        decoder.read_to_end(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    // rule OP-11: the closed list, and no line that looks like a secret.
    #[test]
    fn op_11_a_bundle_holds_its_sections_and_no_secrets() {
        let kept = "level=info msg=\"Starting k3s v1.34.1+k3s1\"";
        let lines = [
            kept,
            "K10c0ffee::server:canary-1",
            "K3S_TOKEN=canary-2",
            "Authorization: Basic canary-3",
            "aws_secret_access_key = canary-4",
            "-----BEGIN PRIVATE KEY----- canary-5",
        ];
        let lines: Vec<LogLine> = lines.into_iter().map(LogLine::from).collect();
        let result = bundle(Section::ALL.map(|section| (section, lines.clone())));
        let text = opened(&result);
        assert!(!text.contains("canary"), "{text}");
        for section in Section::ALL {
            assert!(text.contains(section.file()));
        }
        assert_eq!(text.matches(kept).count(), 4);
        assert_eq!(text.matches(LEFT_OUT).count(), 20);
        assert!(!result.truncated);
    }

    #[test]
    fn op_11_a_bundle_that_is_too_large_loses_the_oldest_lines() {
        // Nothing that gzip could make small.
        let noise = |at: u64| {
            let draw = |n: u64| crate::seed::Seed(at * 64 + n).stream().draw();
            let line: String = (0..60).map(|n| format!("{:016x}", draw(n))).collect();
            LogLine::new(format!("{at} {line}"))
        };
        let lines: Vec<LogLine> = (0..600).map(noise).collect();
        let result = bundle([
            (Section::Versions, vec![LogLine::from("k3s v1.34.1+k3s1")]),
            (Section::K3sLog, lines),
        ]);
        assert!(result.truncated);
        let size = result.bundle.as_bytes().len();
        assert!(
            (64 * 1024..=DIAGNOSTICS_BYTES_MAX).contains(&size),
            "{size}"
        );
        let text = opened(&result);
        assert!(text.contains("\n599 ") && !text.contains("\n0 "));
        assert!(text.contains("k3s v1.34.1+k3s1"));
    }

    // What `tar tv` would say of it: names, sizes, and a checksum that fits.
    #[test]
    fn a_bundle_is_a_tar() {
        let bytes = tar(&[(Section::Units, vec!["k3s.service active".to_owned()])]);
        assert_eq!(&bytes[..9], b"units.txt");
        assert_eq!(&bytes[124..136], b"00000000023\0");
        assert_eq!(&bytes[257..265], b"ustar\x0000");
        let mut header = bytes[..512].to_vec();
        let written = std::str::from_utf8(&header[148..154]).unwrap();
        let written = u32::from_str_radix(written, 8).unwrap();
        header[148..156].fill(b' ');
        assert_eq!(
            written,
            header.iter().map(|byte| u32::from(*byte)).sum::<u32>()
        );
        assert_eq!((bytes.len() % 512, bytes.len()), (0, 4 * 512));
    }
}
