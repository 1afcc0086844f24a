//! `access.issue` and `access.revoke`, and what stays revoked when a snapshot brings it back (OP-7, OP-8, R60).
//!
//! A token is never in clear outside the host: it leaves it sealed to the agent's own key, is kept like that between two
//! steps, and becomes a kubeconfig that only whoever asked can open.

use protocol::pbx::operation::{
    AccessIssueParams, AccessIssueResult, AccessRevokeParams, AccessRevokeResult, OperationResult,
    Params, ParamsRefusal, Reason, Step,
};
use protocol::time::Timestamp;

use super::{Doing, Failure, Progress, other_answer};
use crate::limits::{ACCESS_SECONDS_MAX, ACCESS_SECONDS_MIN};
use crate::pbx::durable::{Durable, StepData};
use crate::pbx::events::End;
use crate::pbx::task::{Account, AccountName, Done, SubjectHash, Task};

/// rule KEY-1: what is sealed to a weak key is open to everybody.
pub(super) fn begin(params: &AccessIssueParams, time: Timestamp) -> Result<StepData, End> {
    if let Err(weak) = params.recipient_key.checked() {
        let why = format!("recipient_key: {weak}; send another key");
        return Err(End::refused(why, Reason::InvalidKey));
    }
    Ok(StepData::AccessIssue {
        asked_at: time,
        token: None,
        expires_at: None,
        kubeconfig: None,
    })
}

pub(super) fn issuing(
    durable: &Durable,
    step: Step,
    params: &AccessIssueParams,
    data: &StepData,
) -> Option<Doing> {
    let StepData::AccessIssue {
        asked_at, token, ..
    } = data
    else {
        return None;
    };
    let name = AccountName {
        subject: SubjectHash::of(&params.subject),
        role: params.role,
    };
    Some(Doing::Task(match (step, token) {
        (Step::EnsureSa, _) => Task::EnsureAccount(Account {
            name,
            asked_at: *asked_at,
        }),
        (Step::Token, _) => Task::RequestToken {
            account: name,
            lifetime_seconds: params
                .lifetime_seconds
                .clamp(ACCESS_SECONDS_MIN, ACCESS_SECONDS_MAX),
            seal_to: durable.identity.as_ref()?.active.handle.sealing,
        },
        (Step::Seal, Some(token)) => Task::SealKubeconfig {
            token: token.clone(),
            recipient: params.recipient_key,
        },
        _ => return None,
    }))
}

pub(super) fn issued(
    step: Step,
    data: &mut StepData,
    done: Done,
    time: Timestamp,
) -> Result<Progress, Failure> {
    let StepData::AccessIssue {
        token,
        expires_at,
        kubeconfig,
        ..
    } = data
    else {
        return Err(other_answer(&done));
    };
    match (step, done) {
        (Step::EnsureSa, Done::Plain) => {}
        (
            Step::Token,
            Done::TokenIssued {
                token: issued,
                lifetime_seconds,
            },
        ) => {
            let lifetime_ms = i64::try_from(lifetime_seconds.saturating_mul(1000));
            let ends_ms = time
                .unix_ms()
                .saturating_add(lifetime_ms.unwrap_or(i64::MAX));
            *token = Some(issued);
            *expires_at = Some(Timestamp::from_unix_ms(ends_ms));
        }
        (Step::Seal, Done::KubeconfigSealed(sealed)) => *kubeconfig = Some(sealed),
        (_, done) => return Err(other_answer(&done)),
    }
    Ok(Progress::Over)
}

pub(super) fn result(data: &StepData) -> Option<OperationResult> {
    let StepData::AccessIssue {
        expires_at,
        kubeconfig,
        ..
    } = data
    else {
        return None;
    };
    Some(OperationResult::AccessIssue(AccessIssueResult {
        sealed_kubeconfig: kubeconfig.clone()?,
        expires_at: (*expires_at)?,
    }))
}

/// A revocation counts from the moment at which the operation is written down, not from its end: one that dies half-way
/// is still meant (R60).
pub(super) fn remember(durable: &mut Durable, params: &AccessRevokeParams, time: Timestamp) {
    let revocations = durable.revocations.get_or_insert_default();
    match params {
        AccessRevokeParams::Subject(subject) => {
            revocations.revoke(SubjectHash::of(subject), time);
        }
        AccessRevokeParams::Everyone => revocations.revoke_everyone(time),
    }
}

/// Looks first and deletes then, so that what was deleted is told whole after a crash.
pub(super) fn revoking(step: Step, data: &StepData) -> Option<Doing> {
    match (step, data) {
        (Step::DeleteSa, StepData::AccessRevoke { accounts: None }) => {
            Some(Doing::Task(Task::ListAccounts))
        }
        (
            Step::DeleteSa,
            StepData::AccessRevoke {
                accounts: Some(accounts),
            },
        ) => Some(Doing::Task(Task::DeleteAccounts(accounts.clone()))),
        _ => None,
    }
}

pub(super) fn revoked(
    accounts: &mut Option<Vec<AccountName>>,
    params: Result<Params, ParamsRefusal>,
    done: Done,
) -> Result<Progress, Failure> {
    match (&*accounts, params, done) {
        (None, Ok(Params::AccessRevoke(params)), Done::Accounts(found)) => {
            let whose = match params {
                AccessRevokeParams::Subject(subject) => Some(SubjectHash::of(&subject)),
                AccessRevokeParams::Everyone => None,
            };
            let found = found.into_iter().map(|account| account.name);
            let is_meant =
                |name: &AccountName| whose.as_ref().is_none_or(|whose| name.subject == *whose);
            *accounts = Some(found.filter(is_meant).collect());
            Ok(Progress::More)
        }
        (Some(_), _, Done::Plain) => Ok(Progress::Over),
        (_, _, done) => Err(other_answer(&done)),
    }
}

pub(super) fn revoke_result(accounts: &[AccountName]) -> OperationResult {
    OperationResult::AccessRevoke(AccessRevokeResult {
        deleted: names(accounts),
    })
}

/// Of these, the accounts that were revoked: a snapshot has brought them back (R60).
pub(super) fn still_revoked(durable: &Durable, accounts: Vec<Account>) -> Vec<AccountName> {
    let revocations = durable.revocations.as_deref();
    let is_revoked = |account: &Account| {
        revocations.is_some_and(|it| it.include(&account.name.subject, account.asked_at))
    };
    let accounts = accounts.into_iter().filter(is_revoked);
    accounts.map(|account| account.name).collect()
}

pub(super) fn names(accounts: &[AccountName]) -> Vec<String> {
    accounts.iter().map(AccountName::to_string).collect()
}
