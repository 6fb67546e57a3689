//! A simulated sentinel beside a real one: the replies have the same form, field by field.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use distlock_sim::{Clock, Layout, Network, Topology};

use crate::replies::Reply;
use crate::servers::{Pair, Real};

const REQUESTS: [&str; 35] = [
    "HELLO 3",
    "PING",
    "ROLE",
    "INFO sentinel",
    "INFO replication",
    "SENTINEL MYID",
    "SENTINEL MASTER mymaster",
    "SENTINEL MASTERS",
    "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster",
    "SENTINEL SENTINELS mymaster",
    "SENTINEL REPLICAS mymaster",
    "SENTINEL SLAVES mymaster",
    "SENTINEL CKQUORUM mymaster",
    "SENTINEL MASTER nobody",
    "SENTINEL GET-MASTER-ADDR-BY-NAME nobody",
    "SENTINEL SENTINELS nobody",
    "SENTINEL REPLICAS nobody",
    "SENTINEL FAILOVER nobody",
    "SENTINEL REMOVE nobody",
    "SENTINEL MONITOR mymaster 127.0.0.1 1 2",
    "SENTINEL SET mymaster quorum 1",
    "SENTINEL SET mymaster quorum x",
    "SENTINEL SET mymaster nonsense 1",
    "SENTINEL nonsense",
    "SENTINEL MASTER",
    "SENTINEL",
    "GET a",
    "EVAL nothing 0",
    "MULTI",
    "PUBLISH a b",
    "COMMAND COUNT",
    "AUTH nobody nothing",
    "SUBSCRIBE +promoted-slave +switch-master",
    "HELLO 2",
    "SENTINEL MASTER mymaster",
];

fn port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    listener.local_addr().expect("it has one").port()
}

/// Starts the master, its replica, and two sentinels that watch them.
fn real() -> [Real; 4] {
    let [master, replica, one, other] = [(); 4].map(|()| port().to_string());
    let start = |port: &str, more: &[&str]| {
        let words = [
            "--port",
            port,
            "--save",
            "",
            "--repl-diskless-sync-delay",
            "0",
        ];
        Real::start_by(&[&words, more].concat(), None)
    };
    let servers = [
        start(&master, &[]),
        start(&replica, &["--replicaof", "127.0.0.1", &master]),
    ];
    let [first, second] = servers;
    let monitor = format!("sentinel monitor mymaster 127.0.0.1 {master} 1\n");
    let sentinel = |port: &str| Real::start_sentinel(port.parse().expect("it is one"), &monitor);
    [sentinel(&one), sentinel(&other), first, second]
}

/// Returns a reply without the parts that differ between sentinels: addresses, ids and numbers.
fn form(reply: &Reply) -> String {
    let text = |bytes: &[u8]| {
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        for host in ["redis-0", "redis-1", "sentinel-0", "sentinel-1"] {
            text = text.replace(host, "127.0.0.1");
        }
        let words = text.split(' ').map(|word| {
            let is_id = word.len() == 40 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
            if is_id {
                "ID".to_owned()
            } else {
                word.to_owned()
            }
        });
        let text = words.collect::<Vec<_>>().join(" ");
        let runs = text
            .as_bytes()
            .chunk_by(|one, two| one.is_ascii_digit() == two.is_ascii_digit());
        let runs = runs.map(|run| {
            if run[0].is_ascii_digit() {
                "#".into()
            } else {
                String::from_utf8_lossy(run)
            }
        });
        runs.collect::<String>()
    };
    match reply {
        Reply::Line(kind, bytes) | Reply::Bulk(kind, bytes)
            if bytes.starts_with(b"# Sentinel") || bytes.starts_with(b"txt:# Sentinel") =>
        {
            let text = text(bytes);
            let known = text
                .lines()
                .filter(|line| line.starts_with("master") || line.starts_with("sentinel_masters"));
            format!(
                "{}{}",
                char::from(*kind),
                known.collect::<Vec<_>>().join(" ")
            )
        }
        Reply::Line(kind, bytes) | Reply::Bulk(kind, bytes) => {
            format!("{}{}", char::from(*kind), text(bytes))
        }
        Reply::Items(kind, items) => {
            let items: Vec<String> = items.iter().map(form).collect();
            format!("{}[{}]", char::from(*kind), items.join(", "))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_simulated_sentinel_replies_in_the_format_of_a_real_one() {
    let [sentinel, _other, master, _replica] = real();
    if !master.version().starts_with("7.0.") {
        return eprintln!("not compared: the simulated sentinel is that of a Redis 7.0");
    }
    let network = Network::new(1);
    let layout = Layout {
        replicas: 1,
        sentinels: 2,
        quorum: 1,
        ..Layout::default()
    };
    let topology = Topology::start(&network, &Clock::new(), 1, layout);
    topology.until_settled().await;
    let simulated = topology.sentinels()[0].server();
    let mut pair = Pair::connect(&sentinel, simulated);
    // By default a sentinel polls every ten seconds.
    pair.ask_words("SENTINEL DEBUG INFO-PERIOD 100 PUBLISH-PERIOD 100")
        .await;
    for (request, wanted) in [
        ("SENTINEL REPLICAS mymaster", "master-link-status, $ok"),
        ("SENTINEL SENTINELS mymaster", "flags, $sentinel, "),
    ] {
        while !form(&pair.ask_words(request).await.0).contains(wanted) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let mut different = Vec::new();
    for request in REQUESTS {
        let (real, simulated) = pair.ask_words(request).await;
        let (simulated, real) = (form(&simulated), form(&real));
        if simulated != real {
            different.push(format!(
                "{request}\n  real: {real}\n  simulated: {simulated}"
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
