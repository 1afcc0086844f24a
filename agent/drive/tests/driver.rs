//! The driver with a toy machine and a toy world, in paused time: what is done beside what, and what is cut off.

#![expect(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it was wrong"
)]

use std::future::Future;
use std::sync::{Arc, Mutex};

use agent_core::journal::{Journal, Ledger, Recorded, StepRecord, Work};
use agent_core::machine::{
    Action, Call, Deadline, Evidence, FieldPath, Input, LeaseFailure, LogLine, Machine,
    StoreFailure, TaskFailure, Ticket, Unopenable, Unreachable, Wake, WakeReason,
};
use agent_core::pbx::durable::EnrollStep;
use agent_core::port::{Clock, Host, Portal, Store, Watch};
use agent_core::seed::Seed;
use agent_core::time::{Monotonic, Now};
use agent_drive::{Driver, SystemClock, World};
use protocol::seal::Sealed;

/// What the toy does at an event.
#[derive(Debug, Clone, Copy)]
enum Do {
    Call(u64),
    Store,
    Perform {
        cost_ms: u64,
        deadline_ms: u64,
        lines: &'static [&'static str],
    },
    Probe,
    Observe,
    Open,
    Lease {
        cost_ms: u64,
        deadline_ms: u64,
    },
    WakeAt(u64),
}

/// What the toy does at each event, by the event's word.
type Plan = fn(&str) -> &'static [Do];

#[derive(Debug)]
struct Toy {
    plan: Plan,
    journal: Journal<Disk>,
    actions: std::collections::VecDeque<Action<Toy>>,
    wake: Option<Wake>,
    tickets: u32,
}

/// A record that holds every step.
#[derive(Debug, Clone, PartialEq)]
struct Disk(u32);

impl Ledger for Disk {
    fn holds(&self, _: &StepRecord) -> bool {
        true
    }
}

#[derive(Debug, Clone)]
struct Task {
    cost_ms: u64,
    lines: &'static [&'static str],
}

impl Machine for Toy {
    type Durable = Disk;
    type Facts = Plan;
    type Observation = ();
    type Request = u64;
    type Reply = u64;
    type Task = Task;
    type Done = ();
    type LeaseCall = u64;
    type LeaseReply = ();

    fn boot(durable: Arc<Disk>, plan: Plan, _: Seed, now: Now) -> Self {
        let mut toy = Toy {
            plan,
            journal: Journal::boot(durable),
            actions: Default::default(),
            wake: None,
            tickets: 0,
        };
        toy.on("boot", now);
        toy
    }

    fn handle(&mut self, input: Input<Self>, now: Now) {
        if let Input::Stored(ticket, stored) = &input {
            self.journal.written(*ticket, stored.clone());
        }
        if matches!(input, Input::Tick) {
            self.wake = None;
        }
        let word = word(&input);
        self.on(&word, now);
    }

    fn poll_action(&mut self) -> Option<Action<Self>> {
        self.actions.pop_front()
    }

    fn poll_wake(&self) -> Option<Wake> {
        self.wake
    }
}

impl Toy {
    fn on(&mut self, event: &str, now: Now) {
        for what in (self.plan)(event) {
            self.tickets += 1;
            let ticket = Ticket(self.tickets);
            let record = StepRecord {
                work: Work::Enrollment {
                    step: EnrollStep::MakeKeys,
                },
                attempt: 1,
            };
            let action = match *what {
                Do::Call(request) => Action::Call(
                    ticket,
                    Call {
                        request,
                        stamp: None,
                        intended: now.monotonic,
                    },
                ),
                Do::Store => {
                    self.journal.change().0 += 1;
                    Action::Store(ticket, self.journal.write(ticket).unwrap())
                }
                Do::Perform {
                    cost_ms,
                    deadline_ms,
                    lines,
                } => Action::Perform(
                    ticket,
                    self.journal
                        .recorded(record, Task { cost_ms, lines })
                        .unwrap(),
                    Deadline(Monotonic::from_ms(deadline_ms)),
                ),
                Do::Probe => {
                    let task = Task {
                        cost_ms: 1,
                        lines: &[],
                    };
                    Action::Probe(ticket, self.journal.recorded(record, task).unwrap())
                }
                Do::Observe => Action::Observe(ticket),
                Do::Open => Action::Open(ticket, Vec::new()),
                Do::Lease {
                    cost_ms,
                    deadline_ms,
                } => {
                    let deadline = Deadline(Monotonic::from_ms(deadline_ms));
                    Action::Lease(ticket, cost_ms, deadline)
                }
                Do::WakeAt(ms) => {
                    self.wake = Some(Wake {
                        at: Monotonic::from_ms(ms),
                        why: WakeReason::SyncDue,
                    });
                    continue;
                }
            };
            self.actions.push_back(action);
        }
    }
}

fn word(input: &Input<Toy>) -> String {
    match input {
        Input::Tick => "tick".to_owned(),
        Input::Observed(..) => "observed".to_owned(),
        Input::Reply(_, Ok(reply)) => format!("replied {reply}"),
        Input::Reply(_, Err(unreachable)) => format!("unreachable: {unreachable}"),
        Input::Stored(_, Ok(())) => "stored".to_owned(),
        Input::Stored(_, Err(failure)) => format!("not stored: {failure}"),
        Input::Opened(..) => "opened".to_owned(),
        Input::Progress(_, lines) => {
            let lines: Vec<_> = lines.iter().map(LogLine::as_str).collect();
            format!("log {}", lines.join(" "))
        }
        Input::Performed(_, Ok(())) => "performed".to_owned(),
        Input::Performed(_, Err(failure)) => {
            let lines: Vec<_> = failure.log_tail.iter().map(LogLine::as_str).collect();
            format!("not performed: {failure} [{}]", lines.join(" "))
        }
        Input::Probed(..) => "probed".to_owned(),
        Input::Leased(_, Ok(())) => "leased".to_owned(),
        Input::Leased(_, Err(failure)) => format!("not leased: {failure}"),
    }
}

/// A world in which everything takes the milliseconds that it says.
#[derive(Clone)]
struct Toys {
    clock: SystemClock,
    disk: Arc<Mutex<u32>>,
    trace: Arc<Mutex<Vec<String>>>,
}

impl Toys {
    fn new() -> Self {
        Toys {
            clock: SystemClock::start(),
            disk: Arc::default(),
            trace: Arc::default(),
        }
    }

    async fn pass(&self, ms: u64) {
        let until = self.clock.now().monotonic.plus_ms(ms);
        self.clock.sleep_until(until).await;
    }

    fn note(&self, now: Now, what: &str) {
        let line = format!("{} {what}", now.monotonic.as_ms());
        self.trace.lock().unwrap().push(line);
    }

    fn world(&self) -> World<Self, Self, Self, SystemClock, Self> {
        World {
            portal: self.clone(),
            host: self.clone(),
            store: self.clone(),
            clock: self.clock,
            watch: self.clone(),
        }
    }

    fn trace(&self) -> Vec<String> {
        self.trace.lock().unwrap().clone()
    }
}

impl Portal<Toy> for Toys {
    /// A request is how long its answer takes.
    async fn call(&mut self, call: Call<u64>) -> Result<u64, Unreachable> {
        self.pass(call.request).await;
        Ok(call.request)
    }
}

impl Host<Toy> for Toys {
    async fn observe(&self) {
        self.pass(2).await;
    }

    async fn open(&self, _: Vec<(FieldPath, Sealed)>) -> Result<(), Unopenable> {
        Ok(())
    }

    async fn perform(
        &self,
        task: &Recorded<Task>,
        mut lines: impl FnMut(Vec<LogLine>) + Send,
    ) -> Result<(), TaskFailure> {
        for line in task.lines {
            lines(vec![LogLine::new(*line)]);
        }
        self.pass(task.cost_ms).await;
        Ok(())
    }

    async fn probe(&self, _: &Recorded<Task>) -> Evidence<()> {
        Evidence::NotStarted
    }

    async fn lease(&self, cost_ms: u64) -> Result<(), LeaseFailure> {
        self.pass(cost_ms).await;
        Ok(())
    }
}

impl Store<Toy> for Toys {
    async fn store(&mut self, durable: Arc<Disk>) -> Result<(), StoreFailure> {
        self.pass(5).await;
        *self.disk.lock().unwrap() = durable.0;
        Ok(())
    }
}

impl Watch<Toy> for Toys {
    fn boot(&mut self, now: Now, durable: &Disk) {
        self.note(now, &format!("boot from {}", durable.0));
    }

    fn input(&mut self, now: Now, input: &Input<Toy>) {
        self.note(now, &word(input));
    }
}

/// Runs the plan until `stop_ms`, in a task of its own, as a fleet does.
async fn run(toys: &Toys, plan: Plan, stop_ms: u64) -> Vec<String> {
    let driver = Driver::boot(Arc::new(Disk(0)), plan, Seed(1), toys.world());
    let clock = toys.clock;
    let stop = async move { clock.sleep_until(Monotonic::from_ms(stop_ms)).await };
    tokio::spawn(driver.run(stop)).await.unwrap();
    toys.trace()
}

#[tokio::test(start_paused = true)]
async fn a_sync_goes_on_while_a_task_runs() {
    let plan: Plan = |event| match event {
        "boot" => &[
            Do::Perform {
                cost_ms: 100,
                deadline_ms: 1_000,
                lines: &["a", "b"],
            },
            Do::Observe,
        ],
        "observed" => &[Do::Call(20)],
        "replied 20" => &[Do::Store, Do::Open],
        "stored" => &[Do::WakeAt(60)],
        "tick" => &[Do::Call(30)],
        _ => &[],
    };
    assert_eq!(
        run(&Toys::new(), plan, 200).await,
        [
            "0 boot from 0",
            "0 log a b",
            "2 observed",
            "22 replied 20",
            "22 opened",
            "27 stored",
            "60 tick",
            "90 replied 30",
            "100 performed",
        ]
    );
}

// rule SYNC-6: whoever leads renews its Lease beside a task of half an hour, and hears by the deadline that it could not.
#[tokio::test(start_paused = true)]
async fn sync_6_a_lease_is_renewed_while_a_task_runs_and_its_deadline_is_kept() {
    let plan: Plan = |event| match event {
        "boot" => &[
            Do::Perform {
                cost_ms: 100,
                deadline_ms: 1_000,
                lines: &[],
            },
            Do::Lease {
                cost_ms: 30,
                deadline_ms: 50,
            },
        ],
        "leased" => &[Do::Lease {
            cost_ms: 30,
            deadline_ms: 50,
        }],
        _ => &[],
    };
    assert_eq!(
        run(&Toys::new(), plan, 200).await,
        [
            "0 boot from 0",
            "30 leased",
            "50 not leased: nothing was said by the deadline",
            "100 performed",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn one_thing_of_a_kind_at_a_time() {
    let plan: Plan = |event| match event {
        "boot" => &[
            Do::Call(10),
            Do::Call(11),
            Do::Perform {
                cost_ms: 7,
                deadline_ms: 1_000,
                lines: &[],
            },
            Do::Probe,
        ],
        _ => &[],
    };
    assert_eq!(
        run(&Toys::new(), plan, 100).await,
        [
            "0 boot from 0",
            "7 performed",
            "7 probed",
            "10 replied 10",
            "21 replied 11"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_that_misses_its_deadline_is_cut_off_and_keeps_its_log() {
    let plan: Plan = |event| match event {
        "boot" => &[Do::Perform {
            cost_ms: 500,
            deadline_ms: 50,
            lines: &["begun"],
        }],
        _ => &[],
    };
    assert_eq!(
        run(&Toys::new(), plan, 1_000).await,
        [
            "0 boot from 0",
            "0 log begun",
            "50 not performed: it was not done by its deadline, and was cut off [begun]",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_wake_that_moves_is_kept_up_with() {
    let plan: Plan = |event| match event {
        "boot" => &[Do::WakeAt(1_000), Do::Call(10)],
        "replied 10" => &[Do::WakeAt(40), Do::Call(20)],
        "tick" => &[],
        "replied 20" => &[Do::WakeAt(60)],
        _ => &[],
    };
    assert_eq!(
        run(&Toys::new(), plan, 100).await,
        ["0 boot from 0", "10 replied 10", "30 replied 20", "60 tick"]
    );
}

#[tokio::test(start_paused = true)]
async fn at_the_end_the_call_under_way_is_waited_for_and_nothing_is_begun() {
    let plan: Plan = |event| match event {
        "boot" => &[
            Do::Call(100),
            Do::Perform {
                cost_ms: 90,
                deadline_ms: 1_000,
                lines: &[],
            },
        ],
        _ => &[Do::Call(1), Do::Store],
    };
    let toys = Toys::new();
    assert_eq!(
        run(&toys, plan, 50).await,
        ["0 boot from 0", "100 replied 100"]
    );
    assert_eq!(*toys.disk.lock().unwrap(), 0);
}

// A crash is a dropped future; what the store had is what the next boot begins with.
#[tokio::test(start_paused = true)]
async fn what_was_not_stored_before_a_crash_is_not_there_after_it() {
    let plan: Plan = |event| match event {
        "boot" => &[Do::Store],
        _ => &[],
    };
    for (crash_ms, on_disk) in [(4, 0), (6, 1)] {
        let toys = Toys::new();
        let driver = Driver::boot(Arc::new(Disk(0)), plan, Seed(1), toys.world());
        let running = tokio::spawn(driver.run(std::future::pending()));
        toys.pass(crash_ms).await;
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        assert_eq!(*toys.disk.lock().unwrap(), on_disk, "after {crash_ms} ms");
    }
}

/// What a fleet spawns must be able to move between threads.
#[test]
fn a_driver_may_move_between_threads() {
    fn moves(_: &(impl Future + Send)) {}
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let plan: Plan = |_| &[];
    moves(
        &Driver::boot(Arc::new(Disk(0)), plan, Seed(1), Toys::new().world())
            .run(std::future::pending()),
    );
}
