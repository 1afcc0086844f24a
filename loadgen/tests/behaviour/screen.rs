//! The live screen on a real terminal: how the terminal is afterwards, where the report is, and when there is none.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use protocol::endpoint::Endpoint;
use record::{Micros, Outcome, RunResult, Snapshot};
use rustix::fs::{Mode, OFlags};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use super::portal::{Between, Fate, Message, Portal};
use super::program::{ENROLLED, Going, Place, adds_up, expecting};

/// What a screen begins and ends with.
const ENTERED: &str = "\u{1b}[?1049h";
const LEFT: &str = "\u{1b}[?1049l";
/// No screen takes so long to show something, on a busy machine either.
const HANGS: Duration = Duration::from_secs(60);

/// A terminal as a person has it before them.
struct Pty {
    keys: File,
    end: OwnedFd,
    shown: Receiver<Vec<u8>>,
    text: String,
    modes: String,
}

impl Pty {
    fn new(columns: u16, rows: u16) -> Self {
        Self::open(columns, rows, true)
    }

    /// One that nobody reads from.
    fn that_stands_still(columns: u16, rows: u16) -> Self {
        Self::open(columns, rows, false)
    }

    fn open(columns: u16, rows: u16, is_read: bool) -> Self {
        // What is started must not hold this end, too: a terminal is gone when nobody does.
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let end = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        let modes = format!("{:?}", tcgetattr(&end).unwrap());
        let keys = File::from(ours);
        let mut screen = keys.try_clone().unwrap();
        let (to_test, shown) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // A terminal whose other end nobody holds any more is an error to read from, not an end.
            while is_read && let Ok(count @ 1..) = screen.read(&mut bytes) {
                if to_test.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        let pty = Self {
            keys,
            end,
            shown,
            text: String::new(),
            modes,
        };
        pty.resize(columns, rows);
        pty
    }

    fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize {
            ws_col: columns,
            ws_row: rows,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.end, size).unwrap();
    }

    /// The program with its stderr here, a kind of terminal in its environment, and its stdout in a pipe; a job of its own,
    /// as a shell with jobs starts it.
    fn start(&self, command: &mut Command) -> Running {
        let end = self.end.try_clone().unwrap();
        let child = command
            .process_group(0)
            .env("TERM", "xterm-256color")
            .stdout(Stdio::piped())
            .stderr(Stdio::from(end))
            .spawn()
            .unwrap();
        // It would hold the other end, too.
        command.stderr(Stdio::null());
        Running(child)
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this was written to it.
    fn gets(&mut self, part: &str) {
        while !self.text.contains(part) {
            self.read(part);
        }
    }

    /// Waits until a person sees this on it.
    fn shows(&mut self, part: &str) {
        while !seen(&self.text).contains(part) {
            self.read(part);
        }
    }

    /// Checks that it is as it was before, for now.
    fn is_as_before(&mut self) {
        self.gets(LEFT);
        assert_eq!(format!("{:?}", tcgetattr(&self.end).unwrap()), self.modes);
    }

    /// Forgets what was written to it.
    fn forget(&mut self) {
        self.text.clear();
    }

    fn read(&mut self, part: &str) {
        match self.shown.recv_timeout(HANGS) {
            Ok(bytes) => self.text.push_str(&String::from_utf8_lossy(&bytes)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                panic!("{part:?} is not in {:?}", self.text)
            }
        }
    }

    /// Checks that it is as it was before, and gives what was written to it after the screen.
    fn given_back(mut self) -> String {
        self.gets(LEFT);
        assert_eq!(format!("{:?}", tcgetattr(&self.end).unwrap()), self.modes);
        drop((self.end, self.keys));
        for bytes in self.shown {
            self.text.push_str(&String::from_utf8_lossy(&bytes));
        }
        let entered = self.text.find(ENTERED).unwrap();
        let left = self.text.find(LEFT).unwrap();
        assert!(entered < left, "{:?}", self.text);
        let after = self.text.split_off(left + LEFT.len());
        assert!(!after.contains(ENTERED), "{after:?}");
        after
    }
}

/// What a person sees of all that was written: a cursor that is moved, cells that are written over, a screen that is
/// wiped. Colours and the rest say nothing about where something is.
fn seen(text: &str) -> String {
    let mut rows = vec![Vec::new(); 100];
    let (mut row, mut column) = (0, 0);
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\u{1b}' => {
                chars.next();
                let mut sequence = String::new();
                let end = chars.find(|char| {
                    sequence.push(*char);
                    char.is_ascii_alphabetic()
                });
                match end {
                    Some('H') => {
                        let mut place = sequence.trim_end_matches('H').split(';');
                        let mut next = || place.next().and_then(|n| n.parse().ok()).unwrap_or(1);
                        (row, column) = (next() - 1, next() - 1);
                    }
                    Some('J') => rows.iter_mut().for_each(Vec::clear),
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => row = (row + 1).min(rows.len() - 1),
            char => {
                let cells: &mut Vec<char> = &mut rows[row];
                cells.resize(cells.len().max(column + 1), ' ');
                cells[column] = char;
                column += 1;
            }
        }
    }
    let rows = rows.iter().map(|row| row.iter().collect::<String>() + "\n");
    rows.collect()
}

/// A program that runs; killed when a test fails.
struct Running(Child);

impl Running {
    fn signal(&self, signal: &str) {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(sent.success(), "{signal}");
    }

    /// Waits until it is stopped, or has ended; tells by which signal.
    fn is_halted(&self) -> Option<i32> {
        let id = Pid::from_child(&self.0);
        let (_, status) = waitpid(Some(id), WaitOptions::UNTRACED).unwrap().unwrap();
        status.stopping_signal().or(status.terminating_signal())
    }

    /// Its exit code and its last line on stdout, which holds no more than plain text.
    fn end(mut self) -> (Option<i32>, String) {
        let mut answered = String::new();
        let mut stdout = self.0.stdout.take().unwrap();
        stdout.read_to_string(&mut answered).unwrap();
        assert!(!answered.contains('\u{1b}'), "{answered}");
        let code = self.0.wait().unwrap().code();
        (code, answered.lines().last().unwrap_or_default().to_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A run of ten minutes with a screen.
fn long() -> (Place, Pty, Running) {
    let place = Place::with(&expecting(ENROLLED).replace("\"2s\"", "\"10m\""));
    let pty = Pty::new(80, 24);
    let running = pty.start(&mut place.loadgen(&RUN));
    (place, pty, running)
}

const RUN: [&str; 6] = ["run", "s.toml", "--out", "out", "--screen", "on"];
const INTERRUPTED: &str = "ABORTED interrupted; this is the report so far";

// case L44: by a key, a signal or a hang-up, the terminal is given back in all its modes, and nothing is lost.
#[test]
fn whatever_ends_it_the_terminal_is_as_before_and_the_report_on_stdout_130() {
    let check = |how: &str| {
        let (place, mut pty, running) = long();
        pty.shows("[1 Overview]");
        pty.shows("1s/600s");
        match how.strip_prefix('-') {
            Some(_) => running.signal(how),
            None => pty.press(how),
        }
        let (code, last) = running.end();
        assert_eq!((code, last.as_str()), (Some(130), INTERRUPTED), "{how}");
        // What would have been told meanwhile is told afterwards.
        let after = pty.given_back();
        assert!(after.contains("interrupted: "), "{how}: {after:?}");
        assert!(
            after.contains("result: out/result.json"),
            "{how}: {after:?}"
        );
        assert!(place.result().interrupted);
    };
    std::thread::scope(|scope| {
        for how in ["q", "Q", "-INT", "-TERM", "-HUP"] {
            scope.spawn(move || check(how));
        }
    });
}

// case L44: nor does a stopped program keep the terminal; when it goes on, all of the screen is there again.
#[test]
fn whoever_stops_it_gets_the_terminal_and_whoever_lets_it_go_on_the_screen() {
    let check = |signal: &str, is_asked: bool| {
        let (_place, mut pty, running) = long();
        pty.shows("1s/600s");
        pty.press("2");
        pty.shows("[2 ");
        for _ in 0..2 {
            running.signal(signal);
            assert_eq!(running.is_halted(), Some(Signal::STOP.as_raw()), "{signal}");
            if is_asked {
                pty.is_as_before();
            }
            pty.forget();
            running.signal("-CONT");
            pty.gets(ENTERED);
            pty.shows("/600s");
            pty.shows("[2 ");
            pty.forget();
        }
        pty.press("Q");
        let (code, last) = running.end();
        assert_eq!((code, last.as_str()), (Some(130), INTERRUPTED), "{signal}");
        pty.is_as_before();
    };
    std::thread::scope(|scope| {
        scope.spawn(move || check("-TSTP", true));
        scope.spawn(move || check("-STOP", false));
    });
}

// case L44: who ends it without a report has the terminal as well.
#[test]
fn whatever_kills_it_with_a_name_gives_the_terminal_back() {
    for (name, signal) in [("-QUIT", Signal::QUIT), ("-ABRT", Signal::ABORT)] {
        let (_place, mut pty, running) = long();
        pty.shows("1s/600s");
        running.signal(name);
        assert_eq!(running.is_halted(), Some(signal.as_raw()), "{name}");
        pty.is_as_before();
    }
}

// case L44: what is pasted is no key, and nothing of it is left for whoever has the terminal next.
#[test]
fn a_paste_is_for_nobody() {
    let (_place, mut pty, running) = long();
    pty.gets("\u{1b}[?2004h");
    pty.shows("1s/600s");
    // More than the terminal holds at once.
    let pasted = "q2\rQ\n".repeat(3_000);
    pty.press(&format!("\u{1b}[200~{pasted}\u{1b}[201~"));
    pty.press("3");
    pty.shows("[3 ");
    pty.shows("/600s");
    pty.press("Qrm everything\r");
    let (code, last) = running.end();
    assert_eq!((code, last.as_str()), (Some(130), INTERRUPTED));
    pty.gets("\u{1b}[?2004l");
    assert_eq!(ioctl_fionread(&pty.end).unwrap(), 0);
    pty.given_back();
}

// case L44: a panic of the screen is not the run's. A debug build has the option that lets it break.
#[cfg(debug_assertions)]
#[test]
fn a_screen_that_panics_leaves_terminal_and_run_as_they_are_0() {
    let place = Place::with(&expecting(ENROLLED).replace("\"2s\"", "\"4s\""));
    let pty = Pty::new(80, 24);
    let mut arguments = RUN.to_vec();
    arguments.extend(["--screen-breaks-at", "2"]);
    let running = pty.start(&mut place.loadgen(&arguments));
    let (code, last) = running.end();
    assert_eq!((code, &last[..5]), (Some(0), "PASS "), "{last}");
    let after = pty.given_back();
    assert!(after.contains("the screen was told to break"), "{after:?}");
    assert!(after.contains("result: out/result.json"), "{after:?}");
}

// case L44: nor is a terminal that nobody holds any more, which cannot be given back either.
#[test]
fn a_terminal_that_is_gone_ends_no_run_0() {
    let place = Place::with(&expecting(ENROLLED).replace("\"2s\"", "\"4s\""));
    let mut pty = Pty::new(80, 24);
    let running = pty.start(&mut place.loadgen(&RUN));
    pty.shows("1s/4s");
    drop(pty);
    let (code, last) = running.end();
    assert_eq!((code, &last[..5]), (Some(0), "PASS "), "{last}");
    assert!(!place.result().interrupted);
}

// A terminal that stands still takes no word of the screen any more; what came of the run is in its file all the same.
#[test]
fn a_terminal_that_stands_still_keeps_no_result_back() {
    let place = Place::with(&expecting(ENROLLED));
    let pty = Pty::that_stands_still(200, 60);
    let running = pty.start(&mut place.loadgen(&RUN));
    let waiting = "until [ -e out/result.json ]; do sleep 0.1; done";
    let kept = place
        .shell(&format!("timeout 60 sh -c '{waiting}'"))
        .status();
    assert!(kept.unwrap().success(), "no result");
    assert_eq!(place.result().fleet.enrolled, 5);
    drop(running);
}

#[test]
fn this_seconds_snapshot_is_beside_the_result_on_request() {
    let (place, mut pty, running) = long();
    pty.shows("1s/600s");
    // It is said where it was asked for, and in the log.
    pty.press("s");
    pty.shows("s.json is in out");
    pty.press("6");
    pty.shows("out/snapshot-");
    pty.press("Q");
    running.end();
    pty.given_back();
    let names = place.names();
    let snapshot = names.iter().find(|name| name.contains("snapshot-"));
    let text = std::fs::read(place.path(snapshot.unwrap())).unwrap();
    let snapshot: Snapshot = serde_json::from_slice(&text).unwrap();
    assert_eq!(snapshot.agents, 5);
}

// In shards as well, which each show their part of the list.
#[test]
fn an_agent_is_followed_and_arrivals_are_held() {
    let scenario = expecting(ENROLLED).replace("\"2s\"", "\"10m\"");
    let place = Place::with(&scenario.replace(
        "count = 5",
        "count = 5\narrival = { ramp = { over = \"8m\" } }",
    ));
    let mut pty = Pty::new(80, 24);
    let running = pty.start(&mut place.loadgen(&[&RUN[..], &["--shards", "2"]].concat()));
    pty.shows("1s/600s");
    pty.press("4");
    pty.shows("Agents: 5");
    // One of the second shard.
    pty.press("/des-5\r");
    pty.shows("Agents: 1 with /des-5");
    pty.press("\r");
    pty.shows("Events of nodes-5 in clu_nodes-5");
    pty.press("/\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\r");
    pty.shows("Agents: 5 ");
    pty.press("\r");
    pty.shows("Events of nodes-1 in clu_nodes-1");
    pty.shows("s sync: ok, ");
    pty.press("p");
    pty.shows("ARRIVALS HELD");
    pty.press("pQ");
    running.end();
    pty.given_back();
    let notes = place.result().notes;
    let still = |note: &String| note.starts_with("arrivals were held by hand from ");
    assert!(notes.iter().any(still), "{notes:?}");
}

// A replay has the time line of the run, as it was at the second that is shown.
#[test]
fn a_time_line_is_seen_while_it_happens_and_again_0() {
    let steps = "[[timeline]]\nat = \"4s\"\ndo.revoke = { share = 1.0 }\n";
    let place = Place::with(&(expecting(ENROLLED).replace("\"2s\"", "\"10m\"") + steps));
    let mut pty = Pty::new(80, 24);
    let running = pty.start(&mut place.loadgen(&RUN));
    pty.press("3");
    pty.shows("Time line: 0 of 1 done, the next in ");
    pty.shows("Time line: 1 of 1 done");
    pty.press("6");
    pty.shows("time line, 4 s: 100 % of the agents are revoked: done to all 5");
    // Whoever is revoked is found by that word.
    pty.press("4/revoked\r");
    pty.shows("Agents: 5 with /revoked");
    pty.press("Q");
    running.end();
    pty.given_back();
    let mut pty = Pty::new(80, 24);
    let running = pty.start(&mut place.loadgen(&["view", "out", "--screen", "on"]));
    pty.press("3");
    pty.shows("Time line: 1 of 1 done");
    pty.press("\u{1b}[H");
    pty.shows("Time line: 0 of 1 done, the next in 3 s");
    pty.press("q");
    running.end();
    pty.given_back();
}

#[test]
fn a_terminal_that_gets_another_size_is_drawn_anew() {
    let (_place, mut pty, running) = long();
    pty.shows("[1 Overview]");
    pty.resize(40, 12);
    pty.shows(" 1-6 Tab p f s q Q  ? help");
    pty.resize(200, 60);
    pty.shows("q end  Q at once  ? help");
    pty.press("Q");
    running.end();
    pty.given_back();
}

/// How a run can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Lines,
    Logs,
    Screen,
    Nowhere,
}

/// A run at a portal that does the same to each agent: it holds the first sync back for longer than three seconds, loses the
/// answer to the second, refuses the third, and then tells it to wait for longer than the run is. Gives the exit code, the
/// last line if anybody could read it, and the result.
fn scripted(shown: Shown) -> (Option<i32>, Option<String>, RunResult) {
    let (place, portal) = (Place::new(), Portal::plain());
    let share = r#"share = { endpoint = "sync", outcome = "ok", at_least = 0.9 }"#;
    place.write("s.toml", expecting(share).replace("\"2s\"", "\"9s\""));
    place.write("tokens", portal.tokens(5));
    let syncs = Mutex::new(BTreeMap::<String, u64>::new());
    let between = Between::stand(portal.address(), move |_, request| {
        if request.endpoint() != "sync" {
            return Fate::Honest;
        }
        let waits = "text/plain\r\nretry-after: 60";
        let agent = request.header("pbx-agent-id").unwrap().to_owned();
        let mut syncs = syncs.lock().unwrap();
        let count = syncs.entry(agent).or_default();
        *count += 1;
        match *count {
            1 => Fate::Late(HELD_BACK),
            2 => Fate::Lost,
            3 => Fate::Instead(Message::answer(503, "text/plain", "")),
            _ => Fate::Instead(Message::answer(429, waits, "")),
        }
    });
    let mut arguments = vec!["run", "s.toml", "--out", "out", "--tokens", "tokens"];
    arguments.extend(["--portal", &between.url]);
    let screen = [
        "--screen",
        if shown == Shown::Screen { "on" } else { "off" },
    ];
    arguments.extend(screen);
    if shown == Shown::Logs {
        arguments.extend(["--log", "info", "--log-format", "json"]);
    }
    let mut command = place.loadgen(&arguments);
    let (code, last) = match shown {
        Shown::Lines | Shown::Logs => {
            let done = Going::start(&mut command).end();
            let last = done.answered.lines().last().map(str::to_owned);
            (done.status.code(), last)
        }
        Shown::Screen => {
            let pty = Pty::new(80, 24);
            let (code, last) = pty.start(&mut command).end();
            pty.given_back();
            (code, Some(last))
        }
        Shown::Nowhere => {
            command.stdout(Stdio::null()).stderr(Stdio::null());
            (command.status().unwrap().code(), None)
        }
    };
    (code, last, place.result())
}

const HELD_BACK: Duration = Duration::from_millis(3_500);

// case L1, L20: however a run is looked at, it has the same samples, the same verdict and the same exit code.
// case L3, L7, L24: and each request is one sample, those that outlast three looks at the run as well.
#[test]
fn whoever_looks_on_the_run_is_the_same() {
    let ways = [Shown::Lines, Shown::Logs, Shown::Screen, Shown::Nowhere];
    let runs = std::thread::scope(|scope| {
        let run = |shown| scope.spawn(move || scripted(shown));
        ways.map(run).map(|run| run.join().unwrap())
    });
    let quick = [
        Outcome::StaleConnection,
        Outcome::Status5xx,
        Outcome::Status4xx,
    ];
    for (shown, (code, last, result)) in ways.into_iter().zip(&runs) {
        adds_up(result);
        let told = "FAIL at least 90 % of sync requests end `ok`: 25 % (0 s to 9 s)";
        assert_eq!(*code, Some(1), "{shown:?}");
        assert_eq!(result.exit_code, 1, "{shown:?}");
        assert_eq!(last.as_deref().unwrap_or(told), told, "{shown:?}");
        let mut samples = 0;
        for (endpoint, outcome, cell) in result.samples.cells() {
            let seen = format!("{shown:?}: {endpoint} {outcome}: {cell:?}");
            assert_eq!((cell.count, cell.service.count()), (5, 5), "{seen}");
            assert_eq!(cell.response.count(), 5, "{seen}");
            samples += cell.count;
        }
        assert_eq!(samples, 25, "{shown:?}");
        assert_eq!(result.samples.lateness.count(), 25, "{shown:?}");
        assert_eq!(result.account, runs[0].2.account, "{shown:?}");
        let sync = |outcome| result.samples.cell(Endpoint::Sync, outcome).unwrap();
        let least = Micros::from_ms(3_400);
        assert_eq!(sync(Outcome::Ok).service.count_within(least), 0);
        for outcome in quick {
            assert_eq!(sync(outcome).service.count_within(least), 5, "{shown:?}");
        }
    }
}

/// Where stdout and stderr are one terminal there is a screen, and the report is on the terminal when it has gone.
#[test]
fn by_itself_there_is_a_screen_where_there_are_terminals_that_are_not_dumb() {
    let rows = [
        (&["--ascii"][..], "xterm", true),
        (&["--screen", "off"], "xterm", false),
        (&[], "dumb", false),
        (&["--screen", "on"], "dumb", false),
    ];
    let check = |(more, kind, is_shown): (&[&str], &str, bool)| {
        let place = Place::with(&expecting(ENROLLED));
        let mut pty = Pty::new(80, 24);
        let mut arguments = vec!["run", "s.toml", "--out", "out"];
        arguments.extend(more);
        let mut command = place.loadgen(&arguments);
        command
            .env("TERM", kind)
            .stdout(Stdio::from(pty.end.try_clone().unwrap()))
            .stderr(Stdio::from(pty.end.try_clone().unwrap()));
        let mut running = Running(command.spawn().unwrap());
        drop(command);
        assert_eq!(running.0.wait().unwrap().code(), Some(0));
        pty.gets("PASS 1 expectation held");
        let before_pass = pty.text.split("PASS 1").next().unwrap();
        assert_eq!(
            before_pass.contains(LEFT),
            is_shown,
            "{more:?} {kind}: {before_pass:?}"
        );
        if is_shown {
            assert!(pty.text.is_ascii(), "{:?}", pty.text);
            pty.given_back();
        } else {
            assert!(!pty.text.contains('\u{1b}'), "{:?}", pty.text);
        }
    };
    std::thread::scope(|scope| {
        for row in rows {
            scope.spawn(move || check(row));
        }
    });
}

// case L46: without a screen as well, a terminal that hangs up ends the run with its report.
#[test]
fn a_hangup_ends_a_run_with_its_report_130() {
    let place = Place::with(&expecting(ENROLLED).replace("\"2s\"", "\"10m\""));
    let mut going = place.start(&[]);
    going.tells("5s/600s");
    // Kernel and shell both say so: the second one is not the wish for a harder end.
    going.signal("-HUP");
    going.signal("-HUP");
    let done = going.end();
    assert_eq!(done.ended(130, "ABORTED"), INTERRUPTED);
    assert!(!done.told.contains("reporting at once"), "{done:#?}");
    assert!(place.result().interrupted);
}

#[test]
fn whoever_lets_hangups_pass_goes_on_0() {
    let place = Place::with(&expecting(ENROLLED).replace("\"2s\"", "\"6s\""));
    let program = env!("CARGO_BIN_EXE_loadgen");
    let line = format!("trap '' HUP; exec {program} run s.toml --out out");
    let mut going = Going::start(&mut place.shell(&line));
    going.tells("5s/6s");
    going.signal("-HUP");
    going.end().ended(0, "PASS");
}

/// A terminal with a finished run on it.
fn viewed(columns: u16, rows: u16) -> (Place, Pty, Running) {
    let place = Place::with(&expecting(ENROLLED));
    place.run(&["--seed", "7"]).ended(0, "PASS");
    let pty = Pty::new(columns, rows);
    let running = pty.start(&mut place.loadgen(&["view", "out", "--screen", "on"]));
    (place, pty, running)
}

#[test]
fn a_finished_run_is_at_its_end_until_it_is_played() {
    let (_place, mut pty, running) = viewed(80, 24);
    pty.shows("PAUSED 2s/2s");
    pty.shows("Expectations: PASS 1 expectation held");
    pty.shows("all agents are enrolled");
    pty.press(" ");
    pty.shows("PLAYS 1s/2s");
    // It pauses where it ends.
    pty.shows("PAUSED 2s/2s");
    pty.press("\u{1b}[H");
    pty.shows("PAUSED 1s/2s");
    pty.press("\u{1b}[C?");
    pty.shows("play and pause");
    // The first key takes the help away, the second has its meaning.
    pty.press("66\u{1b}[5~");
    pty.shows("seed    7");
    pty.press("q");
    let (code, last) = running.end();
    assert_eq!((code, last.as_str()), (Some(0), ""));
    assert_eq!(pty.given_back(), "");
}

#[test]
fn whoever_interrupts_a_replay_gets_the_terminal_back() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let (_place, mut pty, running) = viewed(40, 12);
        pty.shows("PAUSED");
        running.signal(signal);
        assert_eq!(running.end().0, Some(130), "{signal}");
        assert_eq!(pty.given_back(), "");
    }
}
