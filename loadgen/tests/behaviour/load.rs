//! A thousand agents at once, and the shipped scenario that is about them.

use protocol::endpoint::Endpoint;

use super::program::{DOCUMENT, ENROLLED, Place, adds_up, small};

/// They boot in one moment, so they enroll together and fetch the manifest of their first document together: two that ask
/// in the same second sign the same bytes, and neither is a replay.
#[test]
fn a_thousand_agents_that_fetch_one_manifest_together_all_get_it() {
    let scenario = small(&format!(
        "{DOCUMENT}\n[[expect]]\n{ENROLLED}\n[[expect]]\n\
         count = {{ endpoint = \"manifest\", outcome = \"ok\", exactly = 1000 }}\n[[expect]]\n\
         share = {{ endpoint = \"manifest\", outcome = \"ok\", at_least = 1.0 }}\n"
    ));
    let scenario = scenario
        .replace("count = 5", "count = 1000")
        .replace("tempo = 0.01", "tempo = 0.05")
        .replace("\"2s\"", "\"12s\"");
    let place = Place::with(&scenario);
    let done = place.run(&[]);
    done.ended(0, "PASS");
    let result = place.result();
    adds_up(&result);
    let fetched = |second| result.series.started_in(second, Endpoint::Manifest);
    let most = (0..result.series.len()).map(fetched).max();
    assert!(most >= Some(200), "{most:?}");
}

// What is shipped comes to a verdict as it is: 20 s are enough for the first syncs of the storm.
#[test]
fn the_shipped_storm_passes() {
    let place = Place::new();
    let arguments = [
        "run",
        "enrollment-storm",
        "--agents",
        "50",
        "--duration",
        "20s",
    ];
    let done = place.call(&arguments);
    done.ended(0, "PASS");
}
