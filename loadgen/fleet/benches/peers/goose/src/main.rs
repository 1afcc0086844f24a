//! The peer goose: each user posts the file that `PEER_BODY` names to `/sync`, again and again, and reads the answer.

use std::sync::LazyLock;

use goose::prelude::*;

static BODY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let path = std::env::var_os("PEER_BODY").expect("PEER_BODY names a file");
    std::fs::read(path).expect("the file of PEER_BODY can be read")
});

#[tokio::main]
async fn main() -> Result<(), GooseError> {
    GooseAttack::initialize()?
        .register_scenario(scenario!("sync").register_transaction(transaction!(post)))
        .execute()
        .await?;
    Ok(())
}

async fn post(user: &mut GooseUser) -> TransactionResult {
    let request = user
        .get_request_builder(&GooseMethod::Post, "/sync")?
        .header("content-type", "application/json")
        .body(BODY.as_slice());
    let request = GooseRequest::builder().set_request_builder(request).build();
    let answer = user.request(request).await?;
    if let Ok(response) = answer.response {
        let _ = response.bytes().await;
    }
    Ok(())
}
