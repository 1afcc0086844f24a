//! The driver: feeds one machine and carries out what it asks for, until it is told to stop.
//!
//! It waits, and decides nothing. Calls, records, tasks, looks at the node and the lease each have a lane of their own, so
//! a sync goes on while a task runs, and a lease is renewed; in a lane one thing is done after the other. Lanes are asked in a fixed order, so that the
//! same world gives the same run.
//!
//! A crash is dropping the future of [`Driver::run`]: the call under way is cut off with its connection, the task with
//! it, and whatever the store had is what the next boot begins with.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use agent_core::machine::{
    Action, Deadline, Input, LeaseFailure, LogLine, Machine, TaskFailure, Ticket,
};
use agent_core::note::{Note, Severity};
use agent_core::port::{Clock, Host, Portal, Store, Watch};
use agent_core::seed::Seed;
use protocol::limits::LOG_TAIL_LINES_MAX;

/// What a machine lives in.
#[derive(Debug)]
pub struct World<P, H, S, C, W> {
    /// The portal.
    pub portal: P,
    /// The node.
    pub host: H,
    /// The disk.
    pub store: S,
    /// The clocks.
    pub clock: C,
    /// Whoever watches.
    pub watch: W,
}

/// A machine in its world.
#[derive(Debug)]
pub struct Driver<M, P, H, S, C, W> {
    machine: M,
    world: World<P, H, S, C, W>,
}

impl<M, P, H, S, C, W> Driver<M, P, H, S, C, W>
where
    M: Machine,
    P: Portal<M>,
    H: Host<M> + Send + Sync,
    S: Store<M>,
    C: Clock + Clone + Sync,
    W: Watch<M>,
{
    /// Starts a machine from what is on disk; `seed` is another one at each boot.
    pub fn boot(
        durable: Arc<M::Durable>,
        facts: M::Facts,
        seed: Seed,
        mut world: World<P, H, S, C, W>,
    ) -> Self {
        let now = world.clock.now();
        world.watch.boot(now, &durable);
        Self {
            machine: M::boot(durable, facts, seed, now),
            world,
        }
    }

    /// Drives the machine until `stop` resolves; then lets the call under way end, if there is one, hands over its answer
    /// and returns. What else is under way is cut off.
    #[expect(
        clippy::manual_async_fn,
        reason = "what an `async fn` is given takes memory twice, for as long as the agent lives"
    )]
    pub fn run(mut self, stop: impl Future<Output = ()>) -> impl Future<Output = Ended> {
        // Its parts are used where they are, for the same reason.
        async move {
            let log = Log::default();

            let mut calls = Lane::new(self.world.portal, async |mut portal: P, (ticket, call)| {
                let reply = portal.call(call).await;
                (portal, Input::Reply(ticket, reply))
            });
            let mut records =
                Lane::new(self.world.store, async |mut store: S, (ticket, durable)| {
                    let stored = store.store(durable).await;
                    (store, Input::Stored(ticket, stored))
                });
            let mut tasks = Lane::new(self.world.host.clone(), async |host: H, job: Job<M>| {
                let input = job.done(&host, &self.world.clock, &log).await;
                (host, input)
            });
            let mut looks = Lane::new(self.world.host.clone(), async |host: H, ticket| {
                let seen = host.observe().await;
                (host, Input::Observed(ticket, seen))
            });
            let mut leases = Lane::new(
                self.world.host.clone(),
                async |host: H, (ticket, call, deadline)| {
                    let deadline: Deadline = deadline;
                    let replied = tokio::select! {
                        biased;
                        reply = host.lease(call) => reply,
                        () = self.world.clock.sleep_until(deadline.0) => Err(LeaseFailure {
                            why: "nothing was said by the deadline".into(),
                        }),
                    };
                    (host, Input::Leased(ticket, replied))
                },
            );
            let mut openings = Lane::new(self.world.host, async |host: H, (ticket, values)| {
                let opened = host.open(values).await;
                (host, Input::Opened(ticket, opened))
            });

            let mut stop = pin!(stop);
            let mut alarm = None;
            let mut set_for = None;
            let mut after_its_log = None;
            let mut now = self.world.clock.now();
            loop {
                while let Some(action) = self.machine.poll_action() {
                    self.world.watch.action(now, &action);
                    match action {
                        Action::Call(ticket, call) => calls.push((ticket, call)),
                        Action::Store(ticket, durable) => records.push((ticket, durable)),
                        Action::Perform(ticket, task, deadline) => {
                            tasks.push(Job::Perform(ticket, task, deadline));
                        }
                        Action::Probe(ticket, task) => tasks.push(Job::Probe(ticket, task)),
                        Action::Observe(ticket) => looks.push(ticket),
                        Action::Open(ticket, values) => openings.push((ticket, values)),
                        Action::Lease(ticket, call, deadline) => {
                            leases.push((ticket, call, deadline));
                        }
                        Action::Exit => return Ended::Exited,
                        Action::Note(note) => tell(&note),
                    }
                }
                let wake = self.machine.poll_wake();
                self.world.watch.wake(now, wake);
                let at = wake.map(|wake| wake.at);
                if set_for != at {
                    set_for = at;
                    alarm = at.map(|at| Box::pin(self.world.clock.sleep_until(at)));
                }

                let next = poll_fn(|context| {
                    if stop.as_mut().poll(context).is_ready() {
                        return Poll::Ready(None);
                    }
                    let input = calls.poll(context).or(|| records.poll(context));
                    let input = input.or(|| leases.poll(context));
                    let input = input.or(|| {
                        if let Some(input) = after_its_log.take() {
                            return Poll::Ready(input);
                        }
                        let ended = tasks.poll(context);
                        match (log.take(), ended) {
                            (None, ended) => ended,
                            (Some((ticket, lines)), ended) => {
                                if let Poll::Ready(input) = ended {
                                    after_its_log = Some(input);
                                }
                                Poll::Ready(Input::Progress(ticket, lines))
                            }
                        }
                    });
                    let input = input
                        .or(|| looks.poll(context))
                        .or(|| openings.poll(context));
                    let input = input.or(|| match &mut alarm {
                        Some(rings) => rings.as_mut().poll(context).map(|()| {
                            // Set again if the machine still wants it.
                            (alarm, set_for) = (None, None);
                            Input::Tick
                        }),
                        None => Poll::Pending,
                    });
                    input.map(Some)
                })
                .await;
                let Some(input) = next else {
                    break;
                };
                now = self.world.clock.now();
                self.world.watch.input(now, &input);
                self.machine.handle(input, now);
            }

            if calls.is_busy() {
                let input = poll_fn(|context| calls.poll(context)).await;
                let now = self.world.clock.now();
                self.world.watch.input(now, &input);
                self.machine.handle(input, now);
            }
            Ended::Stopped
        }
    }
}

/// How a run of a machine has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was told to stop.
    Stopped,
    /// It has ended itself, to be started again as what is in its place now; what was under way is cut off.
    Exited,
}

/// The first of several things that is there.
trait Or<T> {
    fn or(self, other: impl FnOnce() -> Poll<T>) -> Poll<T>;
}

impl<T> Or<T> for Poll<T> {
    fn or(self, other: impl FnOnce() -> Poll<T>) -> Poll<T> {
        match self {
            Poll::Ready(value) => Poll::Ready(value),
            Poll::Pending => other(),
        }
    }
}

/// Does one thing after the other with one tool, which each of them hands back.
struct Lane<T, A, G, F> {
    tool: Option<T>,
    begin: G,
    running: Option<Pin<Box<F>>>,
    waiting: VecDeque<A>,
}

impl<T, A, I, G, F> Lane<T, A, G, F>
where
    G: FnMut(T, A) -> F,
    F: Future<Output = (T, I)>,
{
    fn new(tool: T, begin: G) -> Self {
        Self {
            tool: Some(tool),
            begin,
            running: None,
            waiting: VecDeque::new(),
        }
    }

    fn push(&mut self, work: A) {
        self.waiting.push_back(work);
    }

    fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<I> {
        if self.running.is_none() {
            let Some(work) = self.waiting.pop_front() else {
                return Poll::Pending;
            };
            if self.waiting.is_empty() {
                // Given back: a lane is idle most of the time, and there are six of them in each agent.
                self.waiting = VecDeque::new();
            }
            let tool = self.tool.take().expect("nothing runs, so the tool is back");
            self.running = Some(Box::pin((self.begin)(tool, work)));
        }
        let Some(running) = &mut self.running else {
            return Poll::Pending;
        };
        running.as_mut().poll(context).map(|(tool, input)| {
            self.running = None;
            self.tool = Some(tool);
            input
        })
    }
}

/// What a host is asked to do to its node, or to look at there.
enum Job<M: Machine> {
    Perform(Ticket, agent_core::journal::Recorded<M::Task>, Deadline),
    Probe(Ticket, agent_core::journal::Recorded<M::Task>),
}

impl<M: Machine> Job<M> {
    async fn done(self, host: &impl Host<M>, clock: &impl Clock, log: &Log) -> Input<M> {
        match self {
            Job::Perform(ticket, task, deadline) => {
                log.begin(ticket);
                let performed = host.perform(&task, |lines| log.push(lines));
                let done = tokio::select! {
                    biased;
                    done = performed => done,
                    () = clock.sleep_until(deadline.0) => Err(TaskFailure {
                        message: "it was not done by its deadline, and was cut off".to_owned(),
                        log_tail: log.tail(),
                    }),
                };
                Input::Performed(ticket, done)
            }
            Job::Probe(ticket, task) => Input::Probed(ticket, host.probe(&task).await),
        }
    }
}

/// The log of the task that runs: what was not handed over yet, and the tail of it all.
#[derive(Default)]
struct Log(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    ticket: Option<Ticket>,
    fresh: Vec<LogLine>,
    tail: VecDeque<LogLine>,
}

impl Log {
    fn lines<R>(&self, with: impl FnOnce(&mut Lines) -> R) -> R {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn begin(&self, ticket: Ticket) {
        self.lines(|lines| {
            *lines = Lines {
                ticket: Some(ticket),
                ..Lines::default()
            };
        });
    }

    fn push(&self, more: Vec<LogLine>) {
        self.lines(|lines| {
            lines.tail.extend(more.iter().cloned());
            let beyond = lines.tail.len().saturating_sub(LOG_TAIL_LINES_MAX);
            lines.tail.drain(..beyond);
            lines.fresh.extend(more);
        });
    }

    fn take(&self) -> Option<(Ticket, Vec<LogLine>)> {
        self.lines(|lines| match lines.ticket {
            Some(ticket) if !lines.fresh.is_empty() => {
                Some((ticket, std::mem::take(&mut lines.fresh)))
            }
            _ => None,
        })
    }

    fn tail(&self) -> Vec<LogLine> {
        self.lines(|lines| lines.tail.iter().cloned().collect())
    }
}

/// A note as an event of the log. Counting them is the watch's.
fn tell(note: &Note) {
    match note.severity() {
        Severity::Debug => tracing::debug!("{note}"),
        Severity::Info => tracing::info!("{note}"),
        Severity::Warn => tracing::warn!("{note}"),
        Severity::Error => tracing::error!("{note}"),
    }
}
