//! The program in a folder of its own: started, watched line by line, ended, and what it left behind.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use record::RunResult;
use tempfile::TempDir;

use super::portal::Portal;

/// No run of a test takes so long, on a busy machine either; one that does hangs.
const HANGS: Duration = Duration::from_secs(60);

/// What every scenario here begins with: a fleet of five that hurries, and a generator that may be as late as a busy
/// machine makes it.
const HEAD: &str = r#"
name = "small"
duration = "2s"
referees = [6, 12]
generator = { lateness_p99_at_most = "30s", dropped_share_at_most = 1.0 }

[[population]]
name = "nodes"
count = 5
tempo = 0.01
node = { boot_time = "0s" }
"#;

/// A document for its clusters, with secrets to be found nowhere else.
pub(crate) const DOCUMENT: &str = r#"
[portal.document]
release = "2026.11.1"
agent_version = "1.4.0"
host = { snapshot_schedule = "0 */6 * * *", snapshot_retention = 14, ingress_mode = "bundled" }
maintenance_window = { days = ["sun"], start = "02:00", duration_minutes = 120, time_zone = "Europe/Berlin" }

[portal.document.secrets]
hcloud_token = "canary-hcloud"
s3 = { endpoint = "https://s3.example", region = "r", bucket = "b", folder = "f", access_key = "canary-a", secret_key = "canary-s" }

"#;

/// A scenario of five agents for two seconds, with more below it.
pub(crate) fn small(more: &str) -> String {
    format!("{HEAD}\n{more}")
}

/// A scenario that expects this.
pub(crate) fn expecting(expected: &str) -> String {
    small(&format!("[[expect]]\n{expected}\n"))
}

/// What holds of every run that goes well.
pub(crate) const ENROLLED: &str = r#"enrolled = { exactly = "all" }"#;

/// A folder that goes when the test ends, and the program in it.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A place with a scenario in it, as `s.toml`.
    pub(crate) fn with(scenario: &str) -> Self {
        let place = Self::new();
        place.write("s.toml", scenario);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    /// Everything that lies here, folders with a `/`.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(self.0.path()).unwrap();
                let name = name.to_str().unwrap().to_owned();
                match path.is_dir() {
                    true => {
                        names.insert(format!("{name}/"));
                        folders.push(path);
                    }
                    false => drop(names.insert(name)),
                }
            }
        }
        names
    }

    /// The program here, with these arguments and no environment of whoever runs the tests.
    pub(crate) fn loadgen(&self, arguments: &[&str]) -> Command {
        let mut command = self.bare(env!("CARGO_BIN_EXE_loadgen"));
        command.args(arguments);
        command
    }

    /// A line for a shell here, without environment too.
    pub(crate) fn shell(&self, line: &str) -> Command {
        let mut command = self.bare("sh");
        command.args(["-c", line]);
        command
    }

    fn bare(&self, program: &str) -> Command {
        // Whoever runs the tests may let hangups pass (nohup), and what it starts inherits that.
        let mut command = Command::new("env");
        command
            .args(["--default-signal=HUP", program])
            .current_dir(self.0.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null());
        command
    }

    /// Starts `loadgen run s.toml --out out` with more arguments.
    pub(crate) fn start(&self, more: &[&str]) -> Going {
        let mut arguments = vec!["run", "s.toml", "--out", "out"];
        arguments.extend(more);
        Going::start(&mut self.loadgen(&arguments))
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, more: &[&str]) -> Done {
        self.start(more).end()
    }

    /// Runs it to its end at a portal, with the identities in `kept`.
    pub(crate) fn run_keeping(&self, portal: &Portal, more: &[&str]) -> Done {
        let url = &portal.running.manager_url;
        self.run(&[&["--portal", url, "--identities", "kept"], more].concat())
    }

    /// Runs `loadgen` with these arguments to its end.
    pub(crate) fn call(&self, arguments: &[&str]) -> Done {
        Going::start(&mut self.loadgen(arguments)).end()
    }

    /// The result that `--out out` got.
    pub(crate) fn result(&self) -> RunResult {
        RunResult::read(&fs::read(self.path("out/result.json")).unwrap()).unwrap()
    }
}

/// A program that runs; killed when a test fails.
pub(crate) struct Going {
    child: Child,
    started: Instant,
    stdout: Option<Receiver<String>>,
    stderr: Receiver<String>,
    told: String,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    /// What it wrote to stdout.
    pub(crate) answered: String,
    /// What it wrote to stderr.
    pub(crate) told: String,
    pub(crate) took: Duration,
}

impl Going {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (to_stdout, stdout) = channel();
        let (to_stderr, stderr) = channel();
        let mut answers = child.stdout.take().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            let mut text = String::new();
            answers.read_to_string(&mut text).unwrap();
            let _ = to_stdout.send(text);
        });
        std::thread::spawn(move || {
            for line in lines.lines() {
                let _ = to_stderr.send(line.unwrap());
            }
        });
        Self {
            child,
            started: now(),
            stdout: Some(stdout),
            stderr,
            told: String::new(),
        }
    }

    /// Waits for a line on stderr that has `part` in it.
    pub(crate) fn tells(&mut self, part: &str) -> String {
        loop {
            match self.stderr.recv_timeout(HANGS) {
                Ok(line) => {
                    self.told.push_str(&line);
                    self.told.push('\n');
                    if line.contains(part) {
                        return line;
                    }
                }
                Err(_) => panic!("it never told {part:?}, but:\n{}", self.told),
            }
        }
    }

    /// Where its own portal is, once it has told so.
    pub(crate) fn own_portal(&mut self) -> String {
        let line = self.tells("portal: embedded, ");
        line.rsplit(' ').next().unwrap().to_owned()
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success(), "{signal}");
    }

    /// Waits for its end, and that of whatever it has started: that holds its stderr, too.
    pub(crate) fn end(mut self) -> Done {
        let answered = match self.stdout.take().unwrap().recv_timeout(HANGS) {
            Ok(answered) => answered,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                panic!("it hangs; it told:\n{}", self.told)
            }
        };
        let status = self.child.wait().unwrap();
        let took = now() - self.started;
        loop {
            match self.stderr.recv_timeout(HANGS) {
                Ok(line) => {
                    self.told.push_str(&line);
                    self.told.push('\n');
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("something outlives it; it told:\n{}", self.told)
                }
            }
        }
        let done = Done {
            status,
            answered,
            told: std::mem::take(&mut self.told),
            took,
        };
        // case L42: without a terminal there is nothing but plain text, whatever happened.
        assert!(
            !done.answered.contains('\u{1b}') && !done.told.contains('\u{1b}'),
            "{done:#?}"
        );
        done
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Done {
    /// Checks the exit code and how the last line begins; gives that line.
    pub(crate) fn ended(&self, code: i32, word: &str) -> &str {
        let last = self.answered.lines().last().unwrap_or_default();
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        let reason = last.strip_prefix(word).unwrap_or_default();
        assert!(reason.starts_with(' '), "{word} expected: {self:#?}");
        last
    }

    /// Checks that it was refused as a mistake of whoever called it: no answer, and these lines told, each once.
    pub(crate) fn refused(&self, lines: &[&str]) {
        assert_eq!(self.status.code(), Some(2), "{self:#?}");
        assert_eq!(self.answered, "", "{self:#?}");
        let told: Vec<&str> = self.told.lines().collect();
        assert_eq!(told.len(), lines.len(), "{self:#?}");
        for (line, expected) in told.iter().zip(lines) {
            assert!(line.contains(expected), "{expected:?} is not in {line:?}");
        }
    }
}

/// A result whose own account adds up, and agrees with the portal's where that is known.
pub(crate) fn adds_up(result: &RunResult) {
    let errors = result.account_errors();
    assert!(errors.is_empty(), "{errors:?}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a program took is the wall clock's affair"
)]
fn now() -> Instant {
    Instant::now()
}
