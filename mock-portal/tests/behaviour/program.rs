//! The program as its user meets it: ready line, signals, exit codes, one line for each error.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpStream;

use super::client::{Message, address, exchange, post};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_mock-portal");

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Code and stderr of a command that ends badly; its error is one line.
pub(crate) fn failing(arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(arguments);
    assert!(output.stdout.is_empty(), "{arguments:?} answered something");
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// A running `serve`; killed when a test fails.
pub(crate) struct Serving {
    child: Child,
    pub(crate) ready: Value,
}

impl Serving {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|_| {
            let mut told = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut told)
                .unwrap();
            panic!("no ready line but {line:?}: {told}")
        });
        Self { child, ready }
    }

    pub(crate) fn on_free_ports(arguments: &[&str]) -> Self {
        let free = ["serve", "--listen", "127.0.0.1:0", "--lab", "127.0.0.1:0"];
        Self::start(command(&free).args(arguments))
    }

    pub(crate) fn url(&self, member: &str) -> &str {
        self.ready[member].as_str().unwrap()
    }

    pub(crate) fn end(self, signal: &str) -> (ExitStatus, String) {
        let sent = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
        self.ended()
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        let mut told = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut told)
            .unwrap();
        (status, told)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_ready_line_says_where_it_is_and_a_signal_ends_it() {
    for signal in ["-TERM", "-INT"] {
        let serving = Serving::on_free_ports(&["--seed", "7"]);
        let port = address(serving.url("agents_url")).port();
        assert_eq!(
            serving.url("agents_url"),
            format!("http://127.0.0.1:{port}/agent/v1")
        );
        assert_eq!(
            serving.url("manager_url"),
            format!("http://127.0.0.1:{port}")
        );
        assert!(serving.url("lab_url").ends_with("/_lab/v1"));
        let key = &serving.ready["release_keys"][0];
        assert_eq!(
            (
                key["id"].as_str().unwrap().len(),
                key["public"].as_str().unwrap().len()
            ),
            (16, 44)
        );
        let members = serving.ready.as_object().unwrap().len();
        assert_eq!(members, 4, "plain http has no CA");
        let (status, told) = serving.end(signal);
        assert_eq!(status.code(), Some(0), "{signal}: {told}");
    }
}

#[test]
fn it_is_described_for_shells_and_readers() {
    let bash = String::from_utf8(run(&["completions", "bash"]).stdout).unwrap();
    for word in ["serve", "keys", "token", "--lab-token", "strict"] {
        assert!(bash.contains(word), "{word}: {bash}");
    }
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("pages");
    let told = run(&["man", pages.to_str().unwrap()]);
    let files = String::from_utf8(told.stdout).unwrap();
    assert_eq!(files.lines().count(), 9, "{files}");
    for file in files.lines() {
        let page = std::fs::read_to_string(file).unwrap();
        assert!(page.contains("\n.TH mock"), "{file}: {page}");
        assert!(
            page.contains("\\fBMOCK_PORTAL_LOG\\fR environment variable"),
            "{file}: {page}"
        );
    }
    let main = std::fs::read(pages.join("mock-portal.1")).unwrap();
    assert_eq!(main, run(&["man"]).stdout);
    let main = String::from_utf8(main).unwrap();
    assert!(
        main.contains("\n.SH \"EXIT STATUS\"\n.nf\n  0  done\n"),
        "{main}"
    );
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["man"],
        &["completions", "zsh"],
        &["openapi", "lab"],
    ] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let done = command(arguments).stdout(full).output().unwrap();
        let told = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{arguments:?}: {told}");
        let says = "standard output cannot be written: No space left on device";
        assert!(told.contains(says), "{arguments:?}: {told}");
    }
}

#[test]
fn a_certificate_made_for_the_run_is_a_file_while_it_runs() {
    let serving = Serving::on_free_ports(&["--tls", "self-signed"]);
    assert!(serving.url("agents_url").starts_with("https://127.0.0.1:"));
    let file = serving.url("ca_pem_file").to_owned();
    assert!(
        std::fs::read_to_string(&file)
            .unwrap()
            .starts_with("-----BEGIN CERTIFICATE-----")
    );
    assert_eq!(serving.end("-TERM").0.code(), Some(0));
    assert!(!Path::new(&file).exists());
}

#[test]
fn keys_are_made_once_and_served_with() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("keys");
    let folder = folder.to_str().unwrap();
    let output = run(&["keys", "make", folder]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    let path = |member: &str| made[member].as_str().unwrap().to_owned();

    for (file, mode) in [
        (path("release_key_file"), 0o600),
        (format!("{folder}/tls-key.pem"), 0o600),
        (folder.to_owned(), 0o700),
    ] {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(
            std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            mode,
            "{file}"
        );
    }
    let shown: Value =
        serde_json::from_slice(&run(&["keys", "show", &path("release_key_file")]).stdout).unwrap();
    assert_eq!(shown, made["release_keys"][0]);
    let public: Value =
        serde_json::from_slice(&std::fs::read(path("release_keys_file")).unwrap()).unwrap();
    assert_eq!(public["release_keys"], made["release_keys"]);

    let serving = Serving::on_free_ports(&[
        "--release-key",
        &path("release_key_file"),
        "--tls",
        &path("tls"),
    ]);
    assert_eq!(serving.ready["release_keys"], made["release_keys"]);
    assert_eq!(
        serving.ready.get("ca_pem_file"),
        None,
        "the authority is somebody else's"
    );
    drop(serving);

    let before = std::fs::read(path("release_key_file")).unwrap();
    let (code, told) = failing(&["keys", "make", folder]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("release.key is there already"), "{told}");
    assert_eq!(std::fs::read(path("release_key_file")).unwrap(), before);
}

#[test]
fn tokens_come_from_a_running_portal_line_by_line() {
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--lab", "127.0.0.1:0"]);
    let serving = Serving::start(serve.env("MOCK_PORTAL_LAB_TOKEN", "correct-horse"));
    let lab = serving.url("lab_url");
    let order = [
        "token",
        "--lab-url",
        lab,
        "--cluster",
        "c",
        "--node",
        "n",
        "--count",
        "3",
        "--servers-per-cluster",
        "2",
    ];
    let output = command(&order)
        .env("MOCK_PORTAL_LAB_TOKEN", "correct-horse")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let named: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                line["cluster_id"].as_str().unwrap(),
                line["node_name"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(named, [("c-1", "n-1"), ("c-1", "n-2"), ("c-2", "n-3")]);
    assert!(
        lines
            .iter()
            .all(|line| line["token"].as_str().unwrap().starts_with("pbxe_"))
    );

    let (code, told) = failing(&order);
    assert_eq!(code, Some(1));
    assert!(
        told.contains("asks for a token") && told.contains("Authorization: Bearer"),
        "{told}"
    );
    let (status, told) = serving.end("-TERM");
    assert_eq!(status.code(), Some(0));
    assert!(
        !told.contains("pbxe_") && !told.contains("correct-horse"),
        "a secret is in the log: {told}"
    );
}

#[tokio::test]
async fn a_dialect_is_spoken() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("dialect.toml");
    std::fs::write(&file, "base_path = \"/v9\"\nmember_code = \"error\"\n").unwrap();
    let serving = Serving::on_free_ports(&["--dialect", file.to_str().unwrap()]);
    let url = serving.url("agents_url").to_owned();
    assert!(url.ends_with("/v9"), "{url}");
    let mut stream = TcpStream::connect(address(&url)).await.unwrap();
    let answer = exchange(&mut stream, &post("/v9/sync", b"{}"))
        .await
        .unwrap();
    assert_eq!(
        (answer.status, answer.json()["error"].as_str()),
        (401, Some("bad_signature"))
    );
    let answer = exchange(&mut stream, &post("/agent/v1/sync", b"{}"))
        .await
        .unwrap();
    assert_eq!(
        (answer.status, answer.json()["error"].as_str()),
        (404, Some("not_found"))
    );
}

fn serve<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [
        &["serve", "--listen", "127.0.0.1:0", "--lab", "127.0.0.1:0"],
        more,
    ]
    .concat()
}

#[test]
fn a_mistake_is_one_line_and_has_its_exit_code() {
    let serving = Serving::on_free_ports(&[]);
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().to_str().unwrap().to_owned();
    let file = |name: &str, content: &[u8]| {
        let path = temporary.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let dialect = file("dialect.toml", b"\nbase_pth = \"/v9\"\n");
    let not_text = file("not-text", b"\xff\xfe");
    let empty = file("empty", b"");
    let taken = address(serving.url("agents_url")).to_string();
    let nobody = "http://127.0.0.1:1/_lab/v1";
    let agents = serving.url("agents_url");

    // Arguments, exit code, and what is said.
    let rows: Vec<(Vec<&str>, i32, Vec<&str>)> = vec![
        (
            vec!["serve", "--listen", &taken, "--lab", "127.0.0.1:0"],
            1,
            vec![&taken, "in use", "another port"],
        ),
        (
            vec!["serve", "--listen", "192.0.2.1:0", "--lab", "127.0.0.1:0"],
            1,
            vec!["192.0.2.1:0", "does not have"],
        ),
        (
            vec!["serve", "--listen", "127.0.0.1:0", "--lab", "0.0.0.0:0"],
            2,
            vec!["--lab-token", "loopback"],
        ),
        (
            serve(&["--dialect", "/nonexistent/d.toml"]),
            2,
            vec!["--dialect", "/nonexistent/d.toml", "No such file"],
        ),
        (
            serve(&["--dialect", &folder]),
            2,
            vec!["--dialect", "directory"],
        ),
        // What has no end is not read to it.
        (
            serve(&["--dialect", "/dev/zero"]),
            2,
            vec!["--dialect /dev/zero", "larger than 1024 KiB"],
        ),
        (
            serve(&["--dialect", &dialect]),
            2,
            vec![&dialect, "line 2", "base_pth"],
        ),
        (
            serve(&["--dialect", &not_text]),
            2,
            vec![&not_text, "utf-8"],
        ),
        (
            serve(&["--release-key", &empty]),
            2,
            vec![&empty, "holds no key"],
        ),
        (
            serve(&["--release-key", &not_text]),
            2,
            vec![&not_text, "no text"],
        ),
        (
            serve(&["--tls", "/nonexistent/c.pem,/nonexistent/k.pem"]),
            2,
            vec!["--tls", "/nonexistent/c.pem"],
        ),
        (
            serve(&["--log", "nonsense=loud"]),
            2,
            vec!["--log", "nonsense=loud", "level"],
        ),
        (
            vec!["keys", "show", &empty],
            2,
            vec![&empty, "holds no key"],
        ),
        (
            vec![
                "token",
                "--lab-url",
                nobody,
                "--cluster",
                "c",
                "--node",
                "n",
            ],
            1,
            vec![nobody, "running"],
        ),
        (
            vec![
                "token",
                "--lab-url",
                agents,
                "--cluster",
                "c",
                "--node",
                "n",
            ],
            1,
            vec!["refused"],
        ),
    ];
    for (arguments, code, says) in rows {
        let (got, told) = failing(&arguments);
        assert_eq!(got, Some(code), "{arguments:?}: {told}");
        assert_eq!(told.trim_end().lines().count(), 1, "{arguments:?}: {told}");
        for part in says {
            assert!(
                told.contains(part),
                "{arguments:?}: {part:?} is not in {told:?}"
            );
        }
    }
    // What clap says takes more than one line.
    for (arguments, says) in [
        (vec!["serve", "--listen", "nowhere"], "127.0.0.1:8470"),
        (vec!["serve", "--tls", "cert.pem"], "self-signed"),
        (vec!["serve", "--profile", "hostile"], "friendly"),
        (vec!["serve", "--lab-token", "short"], "8 to 200"),
        (vec!["serve", "--seed", "-1"], "--seed"),
        (vec!["serv"], "serve"),
        (vec!["token", "--cluster", "a b", "--node", "n"], "A-Z a-z"),
        (vec![], "Usage"),
    ] {
        let (got, told) = failing(&arguments);
        assert_eq!(got, Some(2), "{arguments:?}: {told}");
        assert!(
            told.contains(says),
            "{arguments:?}: {says:?} is not in {told:?}"
        );
    }
}

#[test]
fn a_low_soft_limit_of_open_files_is_no_limit() {
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "ulimit -S -n 64 && exec \"$0\" serve --listen 127.0.0.1:0 --lab 127.0.0.1:0",
        PROGRAM,
    ]);
    let serving = Serving::start(
        shell
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.child.id())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let numbers: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers[0], numbers[1], "{line}");
}

// case L31: nor does a portal without a free descriptor ask for one in a loop.
#[tokio::test]
async fn out_of_descriptors_it_waits_and_goes_on() {
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "ulimit -n 32 && exec \"$0\" serve --listen 127.0.0.1:0 --lab 127.0.0.1:0",
        PROGRAM,
    ]);
    let serving = Serving::start(
        shell
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let at = address(serving.url("agents_url"));
    let mut lab = TcpStream::connect(address(serving.url("lab_url")))
        .await
        .unwrap();
    let message = Message {
        method: "GET",
        path: "/_lab/v1/counters".to_owned(),
        headers: vec![],
        body: vec![],
    };
    let mut counters =
        async || exchange(&mut lab, &message).await.unwrap().json()["connections"].clone();
    assert_eq!(counters().await["out_of_descriptors"], 0);

    let mut held = Vec::new();
    for _ in 0..60 {
        held.push(TcpStream::connect(at).await.unwrap()); // the kernel accepts; the process cannot
    }
    let begun = tokio::time::Instant::now();
    while counters().await["out_of_descriptors"] == 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "60 connections fit into 32 descriptors"
        );
    }
    let before = counters().await["out_of_descriptors"].as_u64().unwrap();
    let second = tokio::time::timeout(Duration::from_secs(1), std::future::pending::<()>()).await;
    assert!(second.is_err());
    let tries = counters().await["out_of_descriptors"].as_u64().unwrap() - before;
    assert!(
        (1..=50).contains(&tries),
        "it tried {tries} times in a second: asleep, or spinning"
    );

    drop(held);
    let mut stream = TcpStream::connect(at).await.unwrap();
    let answer = tokio::time::timeout(
        Duration::from_secs(60),
        exchange(&mut stream, &post("/agent/v1/sync", b"{}")),
    )
    .await;
    assert_eq!(answer.unwrap().unwrap().status, 401);
    let (status, told) = serving.end("-TERM");
    assert_eq!(status.code(), Some(0), "{told}");
    assert_eq!(
        told.matches("no descriptor left").count(),
        1,
        "said once: {told}"
    );
}
