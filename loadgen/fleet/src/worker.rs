//! Work that is done in this process or in one of its own: the agents of a shard, and its portal.
//!
//! Whoever asks cannot tell which. A process of its own is this program again: it reads what it is to be and then orders
//! from its standard input, a line each, answers each with a line, and ends with its input, so it never outlives a run.

use std::ffi::CString;
use std::fmt::Display;
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::usage::{self, Process};

/// How long an answer may take. The longest is given at the end of a run, when everything is added up.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// What a worker ends with that gets no threads.
const WITHOUT_THREADS: i32 = 1;
/// How long a process may take to be gone once its output has ended.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// What does what it is asked.
pub trait Worker: Sized + Send {
    /// What its process is called as, and what its threads are named after.
    const NAME: &'static str;
    /// What it is to be.
    type Setup: Serialize + DeserializeOwned + Send;
    /// What it says when it is that.
    type Ready: Serialize + DeserializeOwned + Send;
    /// Everything that it can be asked.
    type Order: Serialize + DeserializeOwned + Send;

    /// Becomes what it is to be.
    ///
    /// # Errors
    /// Why it cannot.
    fn begin(
        setup: Self::Setup,
    ) -> impl Future<Output = Result<(Self, Self::Ready), String>> + Send;

    /// Does what it is asked; the answer is JSON.
    ///
    /// # Errors
    /// When the answer is nothing that JSON can say.
    fn obey(
        &mut self,
        order: Self::Order,
    ) -> impl Future<Output = serde_json::Result<String>> + Send;
}

/// One thing that a worker can be asked.
pub trait Ask<W: Worker>: Into<W::Order> + Send {
    /// What it answers.
    type Answer: Serialize + DeserializeOwned;

    /// Does it.
    fn done_by(self, worker: &mut W) -> impl Future<Output = Self::Answer> + Send;
}

/// Puts together what a worker can be asked.
macro_rules! orders {
    ($(#[$doc:meta])* pub enum $Order:ident of $Worker:ty { $($Ask:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(serde::Serialize, serde::Deserialize)]
        #[expect(missing_docs, reason = "each is the order of that name")]
        pub enum $Order {
            $($Ask($Ask)),+
        }

        $(impl From<$Ask> for $Order {
            fn from(ask: $Ask) -> Self {
                Self::$Ask(ask)
            }
        })+

        impl $Order {
            async fn done_by(self, worker: &mut $Worker) -> serde_json::Result<String> {
                match self {
                    $(Self::$Ask(ask) => {
                        serde_json::to_string(&$crate::worker::Ask::done_by(ask, worker).await)
                    })+
                }
            }
        }
    };
}
pub(crate) use orders;

/// A worker that has ended, or does not answer, in the middle of a run: what it had counted is lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {who} is lost: {why}")]
pub struct Lost {
    who: String,
    why: String,
}

impl Lost {
    /// Somebody of a shard, who did not answer.
    pub(crate) fn somebody_of(shard: usize, why: &str) -> Self {
        Self {
            who: format!("shard {shard}"),
            why: why.to_owned(),
        }
    }
}

/// How this program is called to be a worker.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program itself.
    pub path: PathBuf,
    /// What it is called.
    pub name: String,
    /// What it is called with before the worker's name.
    pub arguments: Vec<String>,
    /// Where lines go that it writes to its standard error.
    pub tell: fn(&str),
}

/// Where a worker is asked.
#[derive(Debug)]
pub enum Hand<W> {
    /// In this process.
    Here(W),
    /// In one of its own.
    There(Box<WorkerProcess>),
}

/// A worker's process.
#[derive(Debug)]
pub struct WorkerProcess {
    who: String,
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl<W: Worker> Hand<W> {
    /// A worker in this process.
    ///
    /// # Errors
    /// Why it cannot be what it is to be.
    pub async fn here(setup: W::Setup) -> Result<(Self, W::Ready), String> {
        let (worker, ready) = W::begin(setup).await?;
        Ok((Self::Here(worker), ready))
    }

    /// A worker in a process of its own; `number` is its shard's.
    ///
    /// # Errors
    /// When the process does not start, or cannot be what it is to be.
    pub async fn there(
        program: &Program,
        number: usize,
        setup: &W::Setup,
    ) -> Result<(Self, W::Ready), String> {
        let who = format!("{} of shard {number}", W::NAME);
        let failed = |why: &dyn Display| format!("the {who}: {why}");
        let mut process =
            WorkerProcess::start(program, W::NAME, &who).map_err(|error| failed(&error))?;
        let ready: Result<W::Ready, String> =
            process.ask(setup).await.map_err(|lost| lost.to_string())?;
        Ok((
            Self::There(Box::new(process)),
            ready.map_err(|why| failed(&why))?,
        ))
    }

    /// Asks for something.
    ///
    /// # Errors
    /// When the worker is lost.
    pub async fn ask<A: Ask<W>>(&mut self, ask: A) -> Result<A::Answer, Lost> {
        match self {
            Self::Here(worker) => Ok(ask.done_by(worker).await),
            Self::There(process) => process.ask(&Line::<W>::Order(ask.into())).await,
        }
    }

    /// What its own process takes of the machine; none where it has none.
    ///
    /// # Errors
    /// When the worker is lost.
    pub async fn process(&mut self, count_files: bool) -> Result<Option<Process>, Lost> {
        match self {
            Self::Here(_) => Ok(None),
            Self::There(process) => process
                .ask(&Line::<W>::Usage { count_files })
                .await
                .map(Some),
        }
    }
}

/// What a worker's process reads after what it is to be.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
enum Line<W: Worker> {
    /// Something for the worker.
    Order(W::Order),
    /// What does the process take?
    Usage {
        /// Whether open files are to be counted, which takes a while.
        count_files: bool,
    },
}

impl WorkerProcess {
    fn start(program: &Program, name: &str, who: &str) -> io::Result<Self> {
        let mut process = Command::new(&program.path)
            .arg0(&program.name)
            .args(&program.arguments)
            .arg(name)
            // A terminal's Ctrl-C is for the run, which ends its workers when they have reported.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let gone = || io::Error::other("it has no standard streams");
        let (orders, answers) = (process.stdin.take(), process.stdout.take());
        let complaints = process.stderr.take().ok_or_else(gone)?;
        let (tell, whose) = (program.tell, who.to_owned());
        tokio::spawn(async move {
            let mut lines = BufReader::new(complaints).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                tell(&format!("{whose}: {line}"));
            }
        });
        Ok(Self {
            who: who.to_owned(),
            process,
            orders: orders.ok_or_else(gone)?,
            answers: BufReader::new(answers.ok_or_else(gone)?).lines(),
        })
    }

    async fn ask<T: DeserializeOwned>(&mut self, line: &impl Serialize) -> Result<T, Lost> {
        match timeout(ANSWERS_WITHIN, self.answer(line)).await {
            Ok(Ok(answer)) => serde_json::from_str(&answer).map_err(|error| self.lost(error)),
            Ok(Err(error)) => {
                let why = self.ended().await.unwrap_or_else(|| error.to_string());
                Err(self.lost(why))
            }
            Err(_) => Err(self.lost(format!(
                "it did not answer within {} s",
                ANSWERS_WITHIN.as_secs()
            ))),
        }
    }

    async fn answer(&mut self, line: &impl Serialize) -> io::Result<String> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.orders.write_all(text.as_bytes()).await?;
        let answer = self.answers.next_line().await?;
        answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn lost(&self, why: impl Display) -> Lost {
        Lost {
            who: self.who.clone(),
            why: why.to_string(),
        }
    }

    /// How its process has ended; none if it has not.
    async fn ended(&mut self) -> Option<String> {
        let ended = timeout(GONE_WITHIN, self.process.wait()).await.ok()?.ok()?;
        Some(format!("its process has ended ({})", shown(ended)))
    }
}

fn shown(ended: ExitStatus) -> String {
    match ended.signal() {
        Some(9) => "killed, perhaps for want of memory".to_owned(),
        _ => ended.to_string(),
    }
}

/// Is a worker's process, until its input ends: on threads of the worker's name, by which its processor time is found.
///
/// # Errors
/// When the system gives no threads, what it reads is no order, or an answer cannot be written.
pub fn serve<W: Worker>() -> io::Result<()> {
    // What `ps` calls it, since it was started by another name than its own.
    if let Ok(name) = CString::new(format!("loadgen-{}", W::NAME)) {
        let _ = rustix::thread::set_name(&name);
    }
    usage::room_for_threads(usage::runtime_threads() + 1)?;
    // It panics where a thread is refused in spite of that, and then waits for those that it has.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(WITHOUT_THREADS);
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name(W::NAME)
        .enable_all()
        .build()?;
    std::panic::set_hook(usual);
    let named = std::thread::Builder::new().name(W::NAME.to_owned());
    let serving = named.spawn(move || {
        let served = obey_lines::<W>(&runtime);
        // Agents that still run end with the process.
        runtime.shutdown_background();
        served
    })?;
    match serving.join() {
        Ok(served) => served,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn obey_lines<W: Worker>(runtime: &Runtime) -> io::Result<()> {
    let mut lines = io::stdin().lock().lines();
    let Some(setup) = lines.next() else {
        return Ok(());
    };
    let mut worker = match runtime.block_on(W::begin(serde_json::from_str(&setup?)?)) {
        Ok((worker, ready)) => {
            say(&serde_json::to_string(&Ok::<_, String>(ready))?)?;
            worker
        }
        Err(why) => return say(&serde_json::to_string(&Err::<W::Ready, _>(why))?),
    };
    for line in lines {
        let answer = match serde_json::from_str(&line?)? {
            Line::<W>::Order(order) => runtime.block_on(worker.obey(order)),
            Line::Usage { count_files } => serde_json::to_string(&usage::process(count_files)),
        };
        say(&answer?)?;
    }
    Ok(())
}

fn say(answer: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{answer}")?;
    stdout.flush()
}
