//! A simulated cluster beside a real one: both receive the same requests, and have to give the same replies.
//!
//! There are two masters and a replica of the first. The requests use keys and channels of slots that stay, and of one that moves to and
//! fro with its keys, in commands, scripts and transactions, at the node that serves them and at the others. `DISTLOCK_DIFFERENTIAL` and
//! `DISTLOCK_DIFFERENTIAL_SEED` work as in the differential test of one server. Nothing depends on time: the test waits for everything that
//! real nodes learn from each other only later.
mod clusters;
mod sequences;

use std::collections::BTreeMap;

use self::clusters::Both;
use self::sequences::Sequence;

#[tokio::test(start_paused = true)]
async fn simulated_cluster_nodes_reply_like_real_ones() {
    let number = |name| {
        let text = std::env::var(name).ok();
        text.and_then(|text| text.parse::<u64>().ok())
    };
    let requests = number("DISTLOCK_DIFFERENTIAL").unwrap_or(2) * 1000;
    let first = number("DISTLOCK_DIFFERENTIAL_SEED").unwrap_or(1);
    let Some(mut both) = Both::start().await else {
        return;
    };
    let mut outcomes = BTreeMap::new();
    let mut asked = 0;
    for seed in first.. {
        if asked >= requests {
            break;
        }
        let mut sequence = Sequence::begin(&mut both, seed, &mut outcomes).await;
        sequence.play().await;
        asked += sequence.asked;
    }
    both.agree_at_rest().await;
    eprintln!("{asked} requests, {} different outcomes", outcomes.len());
    if std::env::var_os("DISTLOCK_DIFFERENTIAL").is_some() {
        for ((command, outcome), times) in &outcomes {
            eprintln!("{times:6} {command}: {outcome}");
        }
    }
    for code in [
        "MOVED",
        "ASK",
        "TRYAGAIN",
        "CROSSSLOT",
        "EXECABORT",
        "READONLY",
        "ERR Script attempted",
    ] {
        let seen = outcomes
            .keys()
            .any(|(_, outcome)| outcome.starts_with(code));
        assert!(seen, "no reply was {code}");
    }
}
