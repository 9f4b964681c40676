//! Pulls that end while a job is on its way to them. The queue waits for an answer about a delivered job for much longer than
//! these tests wait for the job, so a job that was dropped makes them fail.

use crate::harbor::{ACCOUNT, Harbor, id};
use dogwatch_core::time::moment::Wall;
use dogwatch_fleet::client::{Delivery, Reply};
use dogwatch_fleet::{Client, submit};
use std::sync::Arc;
use std::time::Duration;

/// How often a test tries to hit the moment.
const ROUNDS: usize = 40;
/// A lease that makes the queue wait for 30 s, in seconds.
const LONG: u64 = 60;
/// How long a job may take to arrive.
const SOON: Duration = Duration::from_secs(15);

/// Pulls until a job arrives, and removes it from the queue.
async fn next(client: &Client, first: Option<Delivery>) -> String {
    let pulled = tokio::time::timeout(SOON, async {
        let mut pulled = first;
        loop {
            match pulled {
                Some(delivery) => break delivery,
                None => {
                    let pull = client.pull(ACCOUNT, SOON, std::future::pending()).await;
                    pulled = pull.expect("the server answers");
                }
            }
        }
    });
    let delivery = pulled.await.expect("the job arrives again at once");
    client.reply_surely(&delivery, &Reply::Ack).await.expect("the server answers");
    delivery.subject
}

// promise: 20
#[test]
fn a_job_that_arrives_while_its_pull_is_ended_is_not_lost() {
    let harbor = Harbor::with(1, LONG, 8);
    let job = harbor.job("s5");
    harbor.block_on(|client| async move {
        for round in 0..ROUNDS {
            let id = id(&format!("j{round}"));
            // The answer to the submitter and the job itself arrive at the same moment.
            let stop = async {
                submit::job(&client, &id, &job, Wall(0)).await.expect("queued");
            };
            let pulled = client.pull(ACCOUNT, SOON, stop).await;
            let pulled = pulled.expect("the server answers");
            assert_eq!(next(&client, pulled).await, id.queue_subject());
        }
    });
    assert_eq!(harbor.queued(), 0);
}

// promise: 20
#[test]
fn a_job_that_waits_for_a_worker_is_not_lost_when_the_worker_connects() {
    let harbor = Harbor::with(1, LONG, 8);
    let (job, join) = (harbor.job("s5"), harbor.join("anna"));
    harbor.block_on(|client| async move {
        for round in 0..ROUNDS {
            let id = id(&format!("j{round}"));
            submit::job(&client, &id, &job, Wall(0)).await.expect("queued");
            // The first pull is sent with the connection, whose beginning ends it.
            let worker = Client::connect(&join, true, Arc::new(|_| {})).await.expect("a client");
            assert_eq!(next(&worker, None).await, id.queue_subject());
        }
    });
    assert_eq!(harbor.queued(), 0);
}
