//! The durable record: an old writer's data is read, a newer schema is refused.

use agent_core::pbx::durable::{Durable, DurableRefused, EnrollStep, SCHEMA, StepData};
use protocol::id::Generation;
use protocol::pbx::operation::Step;

use crate::operate::save;
use crate::world::{World, document};

/// What schema 1 looked like when it was written first, with members that this program does not know: a newer program of
/// the same schema was here, and was taken back.
const SCHEMA_1: &str = include_str!("schema-1.json");

#[test]
fn an_old_writers_record_is_read_and_worked_with() {
    let durable = Durable::read(SCHEMA_1.as_bytes()).unwrap();
    assert_eq!(
        durable.identity.as_ref().unwrap().agent_id.as_str(),
        "agt_1"
    );
    assert_eq!(
        (durable.applied_generation, durable.in_force, durable.floor),
        (Generation(18), true, 12)
    );
    let running = durable.operation.as_ref().unwrap();
    assert_eq!(
        (running.step, running.attempt, running.next_sequence),
        (Step::ConfirmS3, 1, 4)
    );
    assert!(
        matches!(&running.data, StepData::SnapshotSave { saved: Some(name), confirmed: None } if name.as_str() == "nightly-fsn1-1")
    );
    assert_eq!(
        (durable.outbox[0].events.len(), durable.finished.len()),
        (2, 1)
    );

    let mut world = World::with(durable, 1);
    let sent = world.sync();
    assert_eq!(sent.report().document.applied_generation, Generation(18));
    let events = world.run_operation();
    assert_eq!(
        events
            .iter()
            .map(|event| event.sequence)
            .collect::<Vec<_>>(),
        [2, 3, 4, 5, 6, 7]
    );
}

#[test]
fn every_member_but_the_schema_may_be_missing() {
    let durable = Durable::read(br#"{"schema": 1}"#).unwrap();
    assert!(
        durable.identity.is_none() && durable.enrollment.is_none() && durable.finished.is_empty()
    );
}

#[test]
fn a_newer_schema_is_refused_and_told() {
    let newer = SCHEMA_1.replacen("\"schema\": 1", "\"schema\": 2", 1);
    let refused = Durable::read(newer.as_bytes()).unwrap_err();
    assert!(matches!(refused, DurableRefused::NewerSchema { found: 2 }));
    assert!(refused.to_string().contains("schema 2"), "{refused}");
    assert!(matches!(
        Durable::read(b"").unwrap_err(),
        DurableRefused::Unreadable(_)
    ));
    assert!(matches!(
        Durable::read(b"{}").unwrap_err(),
        DurableRefused::Unreadable(_)
    ));
}

#[test]
fn what_is_written_is_read_again() {
    let mut world = World::fresh();
    world.call();
    let json = world.disk.to_json();
    let again = Durable::read(&json).unwrap();
    assert_eq!(again.enrollment.as_ref().unwrap().step, EnrollStep::Ask);
    assert_eq!(again.to_json(), json);

    let mut world = World::enrolled();
    world.take(&document(1));
    world.offer(&save("op_1"));
    world.settle();
    let json = world.disk.to_json();
    let again = Durable::read(&json).unwrap();
    assert_eq!(
        again.document.as_ref().unwrap().raw.get(),
        document(1).get(),
        "byte for byte"
    );
    assert_eq!(again.to_json(), json);
    assert_eq!(again.schema, SCHEMA);
}

// The token is the one secret that an engine ever has in clear.
#[test]
fn the_record_holds_no_token() {
    let mut world = World::fresh();
    world.call();
    world.answer_well();
    world.call();
    let json = String::from_utf8(world.disk.to_json()).unwrap();
    assert!(!json.contains("pbxe_token"), "{json}");
}
