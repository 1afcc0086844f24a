//! Peer: what the signature of a request costs whoever makes it and whoever checks it, with nothing around it.

use std::hint::black_box;

use ed25519_dalek::{Signer as _, SigningKey};
use fleet_sim::signing::NodeKey;
use protocol::dialect::Dialect;
use protocol::hash::Sha256Hex;
use protocol::sign::canonical;
use protocol::time::UnixSeconds;

use crate::Figures;
use crate::machine::thread_cpu_seconds;

const ROUNDS: u32 = 20_000;

pub(crate) fn measure() -> Figures {
    let seed = [7; 32];
    let key = SigningKey::from_bytes(&seed);
    let (node_key, _) = NodeKey::from_seed(seed);
    let public = key.verifying_key();
    let signed = canonical(
        &Dialect::default(),
        "POST",
        "/sync",
        UnixSeconds(1_796_000_523),
        &Sha256Hex::of(b"a report"),
    );
    let signature = key.sign(&signed);
    let each_us = |work: &dyn Fn()| {
        let before = thread_cpu_seconds();
        for _ in 0..ROUNDS {
            work();
        }
        (thread_cpu_seconds() - before) * 1e6 / f64::from(ROUNDS)
    };
    [
        (
            "fleet_sign_us",
            each_us(&|| {
                black_box(node_key.sign(black_box(&signed)));
            }),
        ),
        (
            "sign_us",
            each_us(&|| {
                black_box(key.sign(black_box(&signed)));
            }),
        ),
        (
            "verify_strict_us",
            each_us(&|| {
                let verified = public.verify_strict(black_box(&signed), &signature);
                assert!(black_box(verified).is_ok(), "its own signature");
            }),
        ),
    ]
    .into()
}
