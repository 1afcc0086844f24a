//! Every message, with any content, is read as it was written.

#![expect(
    clippy::unwrap_used,
    reason = "a test that unwraps fails with the line that was wrong"
)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use protocol::hash::Sha256Hex;
use protocol::id::{Arch, EnrollmentToken, Generation, KeyId, ServerId};
use protocol::json;
use protocol::pbx::ProtocolVersion;
use protocol::pbx::enroll::{
    BootstrapSecrets, EnrollAnswer, EnrollRequest, FirstManifest, K3sBootstrap, S3Access,
};
use protocol::pbx::operation::{
    AccessIssueParams, AccessIssueResult, AccessRevokeParams, AccessRevokeResult,
    AgentRotateKeyResult, Bundle, ClusterRestoreParams, ClusterRestoreResult, ClusterUpgradeParams,
    ClusterUpgradeResult, Consent, DiagCollectResult, EventState, EventsAnswer, NoParams,
    NodeDrainResult, NodeForgetResult, NodeParams, OperationEvent, OperationEvents, OperationKind,
    OperationOffer, OperationResult, Params, Reason, Role, S3VerifyResult, ServerRejoinParams,
    ServerRejoinResult, SnapshotSaveParams, SnapshotSaveResult, SnapshotSource, Step,
};
use protocol::pbx::release::{
    AddonTemplate, AgentArtifact, AgentRelease, DeploymentRef, HealthCheck, ImageArtifact,
    ImageRelease, Manifest, TemplateEngine,
};
use protocol::pbx::rotate::{RotateKeyAnswer, RotateKeyRequest};
use protocol::pbx::sync::{
    AddonReport, AddonSpec, AddonState, ApiState, BootReport, DesiredState, DocumentReport,
    DocumentResult, HostConfig, IngressMode, K3sReport, LastError, MaintenanceWindow,
    OperationReport, OperationState, SyncAnswer, SyncReport, TimeOfDay, UnitState, UpdateReport,
    Weekday,
};
use protocol::seal::{Sealed, SealingPublicKey};
use protocol::sign::{Signature, SigningPublicKey};
use protocol::time::Timestamp;
use protocol::verified::{ManifestSignature, SignedManifest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

/// Written and read again: by the strict reader, and by serde_json as a state file would be.
fn same<T: Serialize + DeserializeOwned + PartialEq + Debug>(
    message: &T,
) -> Result<(), TestCaseError> {
    let text = serde_json::to_vec(message).unwrap();
    prop_assert_eq!(
        &json::parse::<T>(&text).map_err(|why| TestCaseError::fail(why.to_string()))?,
        message
    );
    prop_assert_eq!(&serde_json::from_slice::<T>(&text).unwrap(), message);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn enroll(request in enroll_request(), answer in enroll_answer()) {
        same(&request)?;
        same(&answer)?;
    }

    #[test]
    fn sync(report in sync_report(), answer in sync_answer()) {
        same(&report)?;
        same(&answer)?;
    }

    #[test]
    fn document(desired in desired()) {
        same(&desired)?;
        prop_assert_eq!(DesiredState::read(&desired.to_raw()), Ok(desired));
    }

    #[test]
    fn operation(params in params(), result in result(), id in id(), target in name(), consent in of(consent())) {
        let kind = params.kind();
        let offer = OperationOffer { id, kind, target, params: params.to_raw(), consent };
        same(&offer)?;
        prop_assert_eq!(offer.params(), Ok(params));
        let (kind, result) = result;
        prop_assert_eq!(OperationResult::read(&kind, &result.to_raw()), Ok(Some(result)));
    }

    #[test]
    fn events(events in vec(event(), 0..4), accepted_sequence in any::<u64>()) {
        same(&OperationEvents::new(events).unwrap())?;
        same(&EventsAnswer { accepted_sequence })?;
    }

    #[test]
    fn rotate(signing in bytes(), sealing in bytes(), proof in bytes::<64>(), active in bytes()) {
        same(&RotateKeyRequest {
            signing_key: SigningPublicKey(signing),
            sealing_key: SealingPublicKey(sealing),
            proof: Signature(proof),
        })?;
        same(&RotateKeyAnswer { active_key_id: KeyId::of(&active) })?;
    }

    #[test]
    fn release(manifest in manifest(), signed in signed_manifest()) {
        same(&manifest)?;
        same(&signed)?;
    }
}

// --- single values ---------------------------------------------------------------------------------------------------

fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[ -~]{0,20}"]
}

/// Any text, but not one of these words: an unknown word that is known would come back as the known one.
fn unknown<T: for<'a> From<&'a str> + Debug>() -> impl Strategy<Value = T> {
    "[a-z]{0,9}\\?".prop_map(|word| T::from(word.as_str()))
}

fn id<T: FromStr<Err: Debug> + Debug>() -> impl Strategy<Value = T> {
    "[A-Za-z0-9_-]{1,64}".prop_map(|text| text.parse().unwrap())
}

fn name<T: FromStr<Err: Debug> + Debug>() -> impl Strategy<Value = T> {
    "[A-Za-z0-9][A-Za-z0-9_-]{0,30}(\\.[A-Za-z0-9_-]{1,31})?".prop_map(|text| text.parse().unwrap())
}

fn bytes<const N: usize>() -> impl Strategy<Value = [u8; N]> {
    vec(any::<u8>(), N).prop_map(|bytes| bytes.try_into().unwrap())
}

fn hash() -> impl Strategy<Value = Sha256Hex> {
    bytes().prop_map(Sha256Hex::from_bytes)
}

fn time() -> impl Strategy<Value = Timestamp> {
    (Timestamp::MIN.unix_ms()..=Timestamp::MAX.unix_ms()).prop_map(Timestamp::from_unix_ms)
}

fn sealed<T: 'static>() -> impl Strategy<Value = Sealed<T>> {
    vec(any::<u8>(), 0..64).prop_map(Sealed::from_bytes)
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    let value = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
        vec(text(), 0..3).prop_map(Value::from),
    ];
    btree_map(text(), value, 0..4).prop_map(|members| members.into_iter().collect())
}

fn raw() -> impl Strategy<Value = Arc<RawValue>> {
    object().prop_map(|object| Arc::from(to_raw_value(&object).unwrap()))
}

fn consent() -> impl Strategy<Value = Consent> {
    (text(), time(), text()).prop_map(|(by, at, text)| Consent { by, at, text })
}

// --- enrollment ------------------------------------------------------------------------------------------------------

fn enroll_request() -> impl Strategy<Value = EnrollRequest> {
    let names = (
        "[!-~]{1,64}",
        id(),
        name(),
        any::<u64>(),
        name(),
        select(Arch::ALL),
    );
    (names, bytes(), bytes(), hash()).prop_map(|(names, signing, sealing, boot_image_sha256)| {
        let (token, cluster_id, node_name, server_id, agent_version, arch) = names;
        EnrollRequest {
            protocol: ProtocolVersion::CURRENT,
            token: EnrollmentToken::new(token).unwrap(),
            cluster_id,
            node_name,
            server_id: ServerId(server_id),
            signing_key: SigningPublicKey(signing),
            sealing_key: SealingPublicKey(sealing),
            boot_image_sha256,
            agent_version,
            arch,
        }
    })
}

fn s3() -> impl Strategy<Value = S3Access> {
    (text(), text(), text(), text(), sealed(), sealed()).prop_map(
        |(endpoint, region, bucket, folder, access_key, secret_key)| S3Access {
            endpoint,
            region,
            bucket,
            folder,
            access_key,
            secret_key,
        },
    )
}

fn secrets() -> impl Strategy<Value = BootstrapSecrets> {
    (sealed(), s3()).prop_map(|(hcloud_token, s3)| BootstrapSecrets { hcloud_token, s3 })
}

fn enroll_answer() -> impl Strategy<Value = EnrollAnswer> {
    let k3s =
        (object(), sealed(), sealed()).prop_map(|(config, token, agent_token)| K3sBootstrap {
            config,
            token,
            agent_token,
        });
    let manifests = vec(
        (name(), text()).prop_map(|(name, content)| FirstManifest { name, content }),
        0..3,
    );
    (id(), time(), name(), k3s, secrets(), manifests).prop_map(
        |(agent_id, portal_time, release, k3s, secrets, manifests)| EnrollAnswer {
            agent_id,
            portal_time,
            release,
            k3s,
            secrets,
            manifests,
        },
    )
}

// --- sync ------------------------------------------------------------------------------------------------------------

fn kind() -> impl Strategy<Value = OperationKind> {
    prop_oneof![select(OperationKind::KNOWN), unknown()]
}

fn sync_report() -> impl Strategy<Value = SyncReport> {
    let node = (
        any::<u64>(),
        name(),
        select(Arch::ALL),
        name(),
        hash(),
        name(),
        any::<bool>(),
    );
    let k3s = (of(text()), select(UnitState::ALL), select(ApiState::ALL))
        .prop_map(|(version, unit, api)| K3sReport { version, unit, api });
    let document = (
        any::<u64>(),
        any::<u64>(),
        select(DocumentResult::ALL),
        of(text()),
    )
        .prop_map(|(applied, seen, result, message)| DocumentReport {
            applied_generation: Generation(applied),
            seen_generation: Generation(seen),
            result,
            message,
        });
    let state = prop_oneof![select(AddonState::KNOWN), unknown()];
    let addon = (name(), state, of(text())).prop_map(|(name, state, message)| AddonReport {
        name,
        state,
        message,
    });
    let operation = (
        id(),
        kind(),
        of(select(Step::ALL)),
        select(OperationState::ALL),
    )
        .prop_map(|(id, kind, step, state)| OperationReport {
            id,
            kind,
            step,
            state,
        });
    let update = (name(), of(name())).prop_map(|(running, rolled_back_from)| UpdateReport {
        running,
        rolled_back_from,
    });
    let last_error = (text(), any::<u32>()).prop_map(|(code, count)| LastError { code, count });
    let rest = (
        any::<bool>(),
        any::<i64>(),
        time(),
        of(last_error),
        vec(text(), 0..3),
    );
    (
        node,
        k3s,
        document,
        vec(addon, 0..3),
        of(operation),
        update,
        rest,
    )
        .prop_map(|(node, k3s, document, addons, operation, update, rest)| {
            let (sequence, agent_version, arch, node_name, image_sha256, entry, leader) = node;
            let (restart_pending, clock_offset_ms, keys_created_at, last_error, problems) = rest;
            SyncReport {
                protocol: ProtocolVersion::CURRENT,
                sequence,
                agent_version,
                arch,
                node_name,
                boot: BootReport {
                    image_sha256,
                    entry,
                },
                k3s,
                leader,
                document,
                addons: addons.into(),
                operation,
                update,
                restart_pending,
                clock_offset_ms,
                keys_created_at,
                last_error,
                problems,
            }
        })
}

fn sync_answer() -> impl Strategy<Value = SyncAnswer> {
    let offer = (id(), kind(), name(), raw(), of(consent())).prop_map(
        |(id, kind, target, params, consent)| OperationOffer {
            id,
            kind,
            target,
            params,
            consent,
        },
    );
    (time(), of(raw()), of(offer)).prop_map(|(portal_time, desired, operation)| SyncAnswer {
        portal_time,
        desired,
        operation,
    })
}

fn desired() -> impl Strategy<Value = DesiredState> {
    let mode = prop_oneof![select(IngressMode::KNOWN), unknown()];
    let host = (text(), any::<u32>(), mode).prop_map(
        |(snapshot_schedule, snapshot_retention, ingress_mode)| HostConfig {
            snapshot_schedule,
            snapshot_retention,
            ingress_mode,
        },
    );
    let start = (0..24, 0..60).prop_map(|(hour, minute)| {
        format!("{hour:02}:{minute:02}")
            .parse::<TimeOfDay>()
            .unwrap()
    });
    let window = (vec(select(Weekday::ALL), 0..7), start, any::<u32>(), text()).prop_map(
        |(days, start, duration_minutes, time_zone)| MaintenanceWindow {
            days,
            start,
            duration_minutes,
            time_zone,
        },
    );
    let secret_options = btree_map(text(), sealed(), 0..3);
    let addon = (name(), any::<bool>(), object(), secret_options).prop_map(
        |(name, enabled, options, secret_options): (_, _, _, BTreeMap<_, _>)| AddonSpec {
            name,
            enabled,
            options,
            secret_options,
        },
    );
    (
        any::<u64>(),
        name(),
        name(),
        host,
        window,
        secrets(),
        vec(addon, 0..3),
    )
        .prop_map(
            |(generation, release, agent_version, host, maintenance_window, secrets, addons)| {
                DesiredState {
                    generation: Generation(generation),
                    release,
                    agent_version,
                    host,
                    maintenance_window,
                    secrets,
                    addons,
                }
            },
        )
}

// --- operations ------------------------------------------------------------------------------------------------------

fn params() -> impl Strategy<Value = Params> {
    let restore = (name(), select(SnapshotSource::ALL), of(text())).prop_map(
        |(snapshot, source, token_hash)| ClusterRestoreParams {
            snapshot,
            source,
            token_hash,
        },
    );
    let issue = (text(), select(Role::ALL), bytes(), any::<u64>()).prop_map(
        |(subject, role, recipient, lifetime_seconds)| AccessIssueParams {
            subject,
            role,
            recipient_key: SealingPublicKey(recipient),
            lifetime_seconds,
        },
    );
    let revoke = of(text()).prop_map(|subject| match subject {
        Some(subject) => AccessRevokeParams::Subject(subject),
        None => AccessRevokeParams::Everyone,
    });
    let rejoin =
        (text(), sealed()).prop_map(|(server_url, token)| ServerRejoinParams { server_url, token });
    let node = || name().prop_map(|node| NodeParams { node });
    prop_oneof![
        name().prop_map(|name| Params::SnapshotSave(SnapshotSaveParams { name })),
        restore.prop_map(Params::ClusterRestore),
        name().prop_map(|release| Params::ClusterUpgrade(ClusterUpgradeParams { release })),
        issue.prop_map(Params::AccessIssue),
        revoke.prop_map(Params::AccessRevoke),
        Just(Params::AgentRotateKey(NoParams {})),
        s3().prop_map(Params::S3Verify),
        Just(Params::DiagCollect(NoParams {})),
        rejoin.prop_map(Params::ServerRejoin),
        node().prop_map(Params::NodeDrain),
        node().prop_map(Params::NodeForget),
    ]
}

fn result() -> impl Strategy<Value = (OperationKind, OperationResult)> {
    let texts = || vec(text(), 0..3);
    let of_kind = |kind: OperationKind| move |result: OperationResult| (kind.clone(), result);
    prop_oneof![
        (name(), any::<u64>(), hash(), text())
            .prop_map(|(name, size, sha256, location)| SnapshotSaveResult {
                name,
                size,
                sha256,
                location
            })
            .prop_map(OperationResult::SnapshotSave)
            .prop_map(of_kind(OperationKind::SnapshotSave)),
        (name(), vec(name(), 0..3), texts())
            .prop_map(
                |(snapshot, forgotten_nodes, revoked)| ClusterRestoreResult {
                    snapshot,
                    forgotten_nodes,
                    revoked
                }
            )
            .prop_map(OperationResult::ClusterRestore)
            .prop_map(of_kind(OperationKind::ClusterRestore)),
        (name(), name(), text())
            .prop_map(|(release, entry, k3s_version)| ClusterUpgradeResult {
                release,
                entry,
                k3s_version
            })
            .prop_map(OperationResult::ClusterUpgrade)
            .prop_map(of_kind(OperationKind::ClusterUpgrade)),
        (sealed(), time())
            .prop_map(|(sealed_kubeconfig, expires_at)| AccessIssueResult {
                sealed_kubeconfig,
                expires_at
            })
            .prop_map(OperationResult::AccessIssue)
            .prop_map(of_kind(OperationKind::AccessIssue)),
        texts()
            .prop_map(|deleted| OperationResult::AccessRevoke(AccessRevokeResult { deleted }))
            .prop_map(of_kind(OperationKind::AccessRevoke)),
        bytes()
            .prop_map(|key| AgentRotateKeyResult {
                active_key_id: KeyId::of(&key)
            })
            .prop_map(OperationResult::AgentRotateKey)
            .prop_map(of_kind(OperationKind::AgentRotateKey)),
        any::<u64>()
            .prop_map(|objects_seen| OperationResult::S3Verify(S3VerifyResult { objects_seen }))
            .prop_map(of_kind(OperationKind::S3Verify)),
        (vec(any::<u8>(), 0..64), any::<bool>())
            .prop_map(|(bundle, truncated)| DiagCollectResult {
                bundle: Bundle::new(bundle).unwrap(),
                truncated
            })
            .prop_map(OperationResult::DiagCollect)
            .prop_map(of_kind(OperationKind::DiagCollect)),
        name()
            .prop_map(|node| OperationResult::ServerRejoin(ServerRejoinResult { node }))
            .prop_map(of_kind(OperationKind::ServerRejoin)),
        (texts(), texts())
            .prop_map(
                |(evicted, left)| OperationResult::NodeDrain(NodeDrainResult { evicted, left })
            )
            .prop_map(of_kind(OperationKind::NodeDrain)),
        any::<bool>()
            .prop_map(|deleted| OperationResult::NodeForget(NodeForgetResult { deleted }))
            .prop_map(of_kind(OperationKind::NodeForget)),
    ]
}

fn event() -> impl Strategy<Value = OperationEvent> {
    let reason = prop_oneof![select(Reason::KNOWN), unknown()];
    let what = (select(EventState::ALL), select(Step::ALL), any::<bool>()).prop_map(
        |(state, step, whole)| {
            let of_a_step = match state {
                EventState::Started => true,
                EventState::Unsupported | EventState::Refused => false,
                EventState::Succeeded | EventState::Failed => !whole,
            };
            (state, of_a_step.then_some(step))
        },
    );
    (
        1..u64::MAX,
        time(),
        what,
        of(text()),
        of(vec(text(), 0..3)),
        of(reason),
        of(raw()),
    )
        .prop_map(
            |(sequence, at, (state, step), message, log_tail, reason, result)| OperationEvent {
                sequence,
                at,
                step,
                state,
                message,
                log_tail,
                reason,
                result,
            },
        )
}

// --- releases --------------------------------------------------------------------------------------------------------

fn manifest() -> impl Strategy<Value = Manifest> {
    let download = || (select(Arch::ALL), text(), hash(), any::<u64>());
    let program = download().prop_map(|(arch, url, sha256, size)| AgentArtifact {
        arch,
        url,
        sha256,
        size,
    });
    let image = (download(), name(), hash()).prop_map(
        |((arch, url, sha256, size), entry, image_sha256)| ImageArtifact {
            arch,
            url,
            sha256,
            size,
            entry,
            image_sha256,
        },
    );
    let agent = (name(), vec(program, 0..3))
        .prop_map(|(version, artifacts)| AgentRelease { version, artifacts });
    let image = (text(), vec(image, 0..3)).prop_map(|(k3s_version, artifacts)| ImageRelease {
        k3s_version,
        artifacts,
    });
    let deployment =
        (text(), text()).prop_map(|(namespace, name)| DeploymentRef { namespace, name });
    let health = vec(deployment, 0..3).prop_map(|deployments| HealthCheck { deployments });
    let addon = (
        name(),
        vec(name(), 0..3),
        vec(name(), 0..3),
        text(),
        of(health),
    )
        .prop_map(
            |(name, requires, conflicts, template, health)| AddonTemplate {
                name,
                requires,
                conflicts,
                template,
                health,
            },
        );
    let engine = prop_oneof![select(TemplateEngine::KNOWN), unknown()];
    (
        name(),
        time(),
        any::<u64>(),
        engine,
        agent,
        image,
        vec(addon, 0..3),
    )
        .prop_map(
            |(version, created_at, floor, template_engine, agent, image, addons)| Manifest {
                version,
                created_at,
                floor,
                template_engine,
                agent,
                image,
                addons,
            },
        )
}

fn signed_manifest() -> impl Strategy<Value = SignedManifest> {
    let any_bytes = || vec(any::<u8>(), 0..80).prop_map(Arc::from);
    let signature =
        (of(text()), any_bytes()).prop_map(|(keyid, sig)| ManifestSignature { keyid, sig });
    (any_bytes(), text(), vec(signature, 0..3)).prop_map(|(payload, payload_type, signatures)| {
        SignedManifest {
            payload,
            payload_type,
            signatures,
        }
    })
}
