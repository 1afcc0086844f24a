//! The enrollment lane: from a token to an identity and a node that runs (ENR-1 to ENR-11).
//!
//! A journal of fixed steps, each recorded before it begins and each repeatable, so that a crash between any two of them
//! ends enrolled, once, with the keys that were kept first:
//!
//! | Step | What is done |
//! |---|---|
//! | make_keys | the host makes the keys and keeps them |
//! | read_server_id | the host asks the provider's metadata |
//! | ask | the node is looked at, the portal asked, and whether its answer opens |
//! | store_answer | the host writes `bootstrap.json`; only then the identity counts |
//! | drop_token | the host deletes the token |
//! | write_k3s, start_k3s, wait_api, write_secrets | the host brings k3s up |
//!
//! What a refusal's status means for the pace is decided there; here only what its code means for the token.

use std::sync::Arc;

use protocol::hash::Sha256Hex;
use protocol::pbx::ProtocolVersion;
use protocol::pbx::call::{Refusal, Request};
use protocol::pbx::enroll::{EnrollAnswer, EnrollRequest};
use protocol::problem::ProblemCode;
use protocol::seal::Sealed;

use super::durable::{EnrollStep, Enrollment, Identity, IdleReason, KeyPairs};
use super::pace::{RequestRefused, Tries};
use super::shared::Shared;
use super::task::{Done, KeySlot, Secrets, Task};
use crate::backoff::Backoff;
use crate::journal::{Recorded, StepRecord, Work};
use crate::limits::TOKEN_REFUSALS_MAX;
use crate::machine::{FieldPath, TaskFailure, Unopenable, Wake, WakeReason};
use crate::note::Note;
use crate::seed::{Chance, Purpose, Seed};
use crate::time::Monotonic;

/// An enrollment under way; what must outlive a crash is [`Enrollment`].
#[derive(Debug)]
pub(super) struct Enroll {
    /// Refusals that have been answered; the record may be one ahead.
    refused: u32,
    /// The image that was booted, looked at for each try.
    image: Option<Sha256Hex>,
    /// The portal's answer, and whether its secrets were found to open.
    answer: Option<Arc<EnrollAnswer>>,
    pub(super) tries: Tries,
    retry: Backoff,
    retry_at: Option<Monotonic>,
    retry_jitter: Chance,
}

/// What a start finds.
pub(super) enum Start {
    /// The enrollment is through.
    Through,
    /// It is to be begun or gone on with.
    UnderWay(Enroll),
    /// It will come to nothing in this life of the program.
    Idle,
}

impl Enroll {
    pub(super) fn boot(seed: Seed, shared: &mut Shared) -> Start {
        let found = shared.journal.enrollment.as_deref().cloned();
        if found.is_none() && shared.journal.identity.is_some() {
            return Start::Through;
        }
        let found = found.unwrap_or(Enrollment {
            step: EnrollStep::MakeKeys,
            attempt: 0,
            keys: None,
            server_id: None,
            refusals: 0,
        });
        let still_to_ask = found.step <= EnrollStep::StoreAnswer;
        if still_to_ask && found.refusals >= TOKEN_REFUSALS_MAX {
            give_up(shared, IdleReason::TokenRefused { code: None });
            return Start::Idle;
        }
        if still_to_ask && shared.facts.config.token.is_none() {
            shared.note(Note::NoToken);
            return Start::Idle;
        }
        let refused = found.refusals;
        let resumed = match found.step {
            // The answer is gone with the crash; asked again it is the same (ENR-10).
            EnrollStep::StoreAnswer => Enrollment {
                step: EnrollStep::Ask,
                attempt: 1,
                ..found
            },
            _ => Enrollment {
                attempt: found.attempt + 1,
                ..found
            },
        };
        shared.journal.change().enrollment = Some(Box::new(resumed));
        Start::UnderWay(Self {
            refused,
            image: None,
            answer: None,
            tries: Tries::default(),
            retry: Backoff::default(),
            retry_at: None,
            retry_jitter: seed.child(Purpose::TaskRetryJitter),
        })
    }

    /// When a task that has failed is to be tried again.
    pub(super) fn wake(&self) -> Option<Wake> {
        let failures = self.retry.failures();
        self.retry_at.map(|at| Wake {
            at,
            why: WakeReason::TaskRetry { failures },
        })
    }

    /// The time has moved on.
    pub(super) fn look_at_clock(&mut self, shared: &Shared) {
        self.retry_at = self.retry_at.filter(|at| *at > shared.now.monotonic);
    }

    /// Whether the node is to be looked at, for the image that was booted in truth (ENR-3).
    pub(super) fn wants_look(&self, shared: &Shared) -> bool {
        self.is_asking(shared) && self.image.is_none()
    }

    /// Whether the portal is to be asked.
    pub(super) fn wants_call(&self, shared: &Shared) -> bool {
        self.is_asking(shared) && self.image.is_some()
    }

    /// Whether the record is such that the portal may be asked now. The last try counts before it is out, so that no crash
    /// makes it one more (ENR-7).
    pub(super) fn is_ready_to_call(&self, shared: &mut Shared) -> bool {
        let is_last = self.refused + 1 == TOKEN_REFUSALS_MAX;
        self.count(
            shared,
            if is_last {
                TOKEN_REFUSALS_MAX
            } else {
                self.refused
            },
        );
        shared.journal.is_settled()
    }

    fn count(&self, shared: &mut Shared, refusals: u32) {
        if shared
            .journal
            .enrollment
            .as_deref()
            .is_some_and(|enrollment| enrollment.refusals != refusals)
        {
            change(shared, |enrollment| enrollment.refusals = refusals);
        }
    }

    /// Whether the step is to ask, and the portal's answer is not in hand.
    fn is_asking(&self, shared: &Shared) -> bool {
        let on_disk = shared.journal.on_disk().enrollment.as_deref();
        self.answer.is_none()
            && on_disk.is_some_and(|enrollment| enrollment.step == EnrollStep::Ask)
    }

    /// The request, made of what is kept, so that it is the same after a crash (ENR-3).
    pub(super) fn request(&self, shared: &Shared) -> Option<Request> {
        let enrollment = shared.journal.on_disk().enrollment.as_deref()?;
        let (keys, facts) = (enrollment.keys?, &shared.facts);
        Some(Request::Enroll(Arc::new(EnrollRequest {
            protocol: ProtocolVersion::CURRENT,
            token: facts.config.token.clone()?,
            cluster_id: facts.config.cluster_id.clone(),
            node_name: facts.config.node_name.clone(),
            server_id: enrollment.server_id?,
            signing_key: keys.handle.signing,
            sealing_key: keys.handle.sealing,
            boot_image_sha256: self.image?,
            agent_version: facts.agent_version.clone(),
            arch: facts.arch,
        })))
    }

    pub(super) fn looked(&mut self, image: Sha256Hex) {
        self.image = Some(image);
    }

    /// The portal has answered: before anything is done with it, do its secrets open?
    pub(super) fn answered(&mut self, answer: Arc<EnrollAnswer>) {
        self.answer = Some(answer);
    }

    /// The secrets that are to be tried.
    pub(super) fn to_open(&self, shared: &Shared) -> Option<Vec<(FieldPath, Sealed)>> {
        let step = shared.journal.enrollment.as_deref()?.step;
        let answer = self.answer.as_ref().filter(|_| step == EnrollStep::Ask)?;
        Some(super::shared::sealed_values(answer.sealed_values()))
    }

    /// Whether they opened; if not, the answer counts for nothing, and the caller waits as for a broken one.
    pub(super) fn opened(&mut self, shared: &mut Shared, result: Result<(), Unopenable>) {
        match result {
            Ok(()) => {
                self.count(shared, self.refused);
                begin(shared, EnrollStep::StoreAnswer);
            }
            Err(unopenable) => {
                shared.note(Note::BootstrapUnopenable {
                    field: unopenable.field,
                });
                self.ask_anew();
            }
        }
    }

    /// The request was refused with 400: three of these idle, as three refusals of the token do (ANS-2).
    pub(super) fn request_refused(&mut self, shared: &mut Shared, refused: RequestRefused) -> bool {
        let code = refused.code;
        self.refused(shared, IdleReason::EnrollmentRefused { code })
    }

    /// Any other failure: what its code means for the token. Whether the enrollment is given up.
    pub(super) fn failed(&mut self, shared: &mut Shared, refusal: Option<&Refusal>) -> bool {
        self.ask_anew();
        let code = refusal.and_then(|refusal| refusal.code);
        match (refusal.map(|refusal| refusal.status), code) {
            // rule ENR-7
            (
                Some(401),
                Some(
                    ProblemCode::InvalidToken
                    | ProblemCode::TokenUsed
                    | ProblemCode::TokenExpired
                    | ProblemCode::ServerMismatch,
                ),
            ) => self.refused(shared, IdleReason::TokenRefused { code }),
            // rule ENR-8
            (Some(409), Some(ProblemCode::ImageMismatch)) => {
                give_up(shared, IdleReason::ImageMismatch);
                true
            }
            // rule ENR-9, and everything else: asked again when the pace allows it, and nothing counted.
            _ => {
                self.count(shared, self.refused);
                false
            }
        }
    }

    /// One more refusal, counted durably; the third idles (ENR-7).
    fn refused(&mut self, shared: &mut Shared, last: IdleReason) -> bool {
        self.refused += 1;
        self.count(shared, self.refused);
        let enough = self.refused >= TOKEN_REFUSALS_MAX;
        if enough {
            give_up(shared, last);
        }
        enough
    }

    /// The next try looks at the node again.
    fn ask_anew(&mut self) {
        self.answer = None;
        self.image = None;
    }

    /// The host's task of the step that is recorded, if it has one and is not waited for.
    pub(super) fn task(&self, shared: &Shared) -> Option<Recorded<Task>> {
        if self.retry_at.is_some() {
            return None;
        }
        let enrollment = shared.journal.enrollment.as_deref()?;
        let task = match enrollment.step {
            EnrollStep::MakeKeys => Task::MakeKeys(KeySlot::First),
            EnrollStep::ReadServerId => Task::ReadServerId,
            EnrollStep::Ask => return None,
            EnrollStep::StoreAnswer => Task::StoreBootstrap(Arc::clone(self.answer.as_ref()?)),
            EnrollStep::DropToken => Task::DropToken,
            EnrollStep::WriteK3s => Task::WriteK3sConfig,
            EnrollStep::StartK3s => Task::StartK3s,
            EnrollStep::WaitApi => Task::WaitApi,
            EnrollStep::WriteSecrets => Task::WriteSecrets(Secrets::Bootstrap),
        };
        let record = StepRecord {
            work: Work::Enrollment {
                step: enrollment.step,
            },
            attempt: enrollment.attempt,
        };
        shared.journal.recorded(record, task)
    }

    /// A task has ended: the next step, or the same one after a wait.
    pub(super) fn performed(&mut self, shared: &mut Shared, result: Result<Done, TaskFailure>) {
        let Some(step) = shared
            .journal
            .enrollment
            .as_deref()
            .map(|enrollment| enrollment.step)
        else {
            return;
        };
        let went = result
            .map_err(|failure| failure.message)
            .and_then(|done| self.step_done(shared, step, done));
        match went {
            Ok(()) => {
                self.retry.succeed();
                self.retry_at = None;
            }
            Err(message) => {
                let wait_ms = self
                    .retry
                    .fail(&shared.facts.limits, &mut self.retry_jitter);
                self.retry_at = Some(shared.now.monotonic.plus_ms(wait_ms));
                shared.note(Note::TaskFailed {
                    work: Work::Enrollment { step },
                    message,
                });
            }
        }
    }

    fn step_done(
        &mut self,
        shared: &mut Shared,
        step: EnrollStep,
        done: Done,
    ) -> Result<(), String> {
        match (step, done) {
            (EnrollStep::MakeKeys, Done::Keys { handle, .. }) => {
                let keys = KeyPairs {
                    handle,
                    created_at: shared.time(),
                };
                change(shared, |enrollment| enrollment.keys = Some(keys));
                begin(shared, EnrollStep::ReadServerId);
            }
            (EnrollStep::ReadServerId, Done::ServerId(server_id)) => {
                change(shared, |enrollment| enrollment.server_id = Some(server_id));
                begin(shared, EnrollStep::Ask);
            }
            (EnrollStep::StoreAnswer, Done::Plain) => {
                let answer = self.answer.take().ok_or("the portal's answer is gone")?;
                let keys = shared
                    .journal
                    .enrollment
                    .as_deref()
                    .and_then(|enrollment| enrollment.keys);
                shared.journal.change().identity = Some(Identity {
                    agent_id: answer.agent_id.clone(),
                    active: keys.ok_or("the keys are gone")?,
                    other: None,
                });
                begin(shared, EnrollStep::DropToken);
            }
            (EnrollStep::DropToken, Done::Plain) => begin(shared, EnrollStep::WriteK3s),
            (EnrollStep::WriteK3s, Done::Plain) => begin(shared, EnrollStep::StartK3s),
            (EnrollStep::StartK3s, Done::Plain) => begin(shared, EnrollStep::WaitApi),
            (EnrollStep::WaitApi, Done::Plain) => begin(shared, EnrollStep::WriteSecrets),
            (EnrollStep::WriteSecrets, Done::Plain) => {
                shared.journal.change().enrollment = None;
                if let Some(identity) = &shared.journal.identity {
                    let agent = identity.agent_id.clone();
                    shared.note(Note::Enrolled { agent });
                }
            }
            (_, done) => return Err(format!("the host answered with {}", done.name())),
        }
        Ok(())
    }
}

/// Records that a step begins.
fn begin(shared: &mut Shared, step: EnrollStep) {
    change(shared, |enrollment| {
        enrollment.step = step;
        enrollment.attempt = 1;
    });
}

fn change(shared: &mut Shared, change: impl FnOnce(&mut Enrollment)) {
    if let Some(enrollment) = &mut shared.journal.change().enrollment {
        change(enrollment);
    }
}

fn give_up(shared: &mut Shared, reason: IdleReason) {
    shared.journal.change().idle = Some(reason.clone());
    shared.note(Note::EnrollmentGivenUp { reason });
}
