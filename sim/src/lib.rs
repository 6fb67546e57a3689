//! Simulated Redis servers in memory, alone, behind sentinels and in clusters, for deterministic tests of the whole library.
//!
//! A server answers as Redis 7.0.15 does, executes Lua scripts with the interpreter that Redis embeds, and takes its time from tokio's
//! clock, which a test can pause. Two runs with the same seed and the same requests give the same replies: nothing depends on a hash map's
//! order, on the machine's clock or on its speed. A standing differential test compares servers, clusters and sentinels with real ones.
//!
//! Not implemented: streams, geography, HyperLogLog and bit fields; blocking pops; commands that nothing here sends, such as `MSET`,
//! `APPEND`, `LINSERT`, `ZPOPMIN` and ranges by bytes; `DUMP`, `RESTORE`, tracking and keyspace notifications; replicas of replicas;
//! selectors of access lists; in scripts `cjson`, `cmsgpack`, `bit`, random numbers and version 3 of the protocol. A request for any of
//! these gets an error that says so.
//!
//! The simulation implements an opinion of Redis' behaviour. Memory and processor time cost nothing here, and nothing is written to a disk.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "a server reads its clock and waits; nothing of the library's layers is in here"
)]

mod acl;
mod arguments;
mod clients;
mod clock;
mod cluster;
mod cluster_bus;
mod cluster_commands;
mod cluster_routing;
mod cluster_slots;
mod cluster_view;
mod commands;
mod configuration;
mod connection;
mod core;
mod decoder;
mod dispatch;
mod failure;
mod generic;
mod glob;
mod hashes;
mod info;
mod interpreter;
mod keyspace;
mod keyspec;
mod lists;
mod lua_errors;
mod lua_values;
mod monitor;
mod network;
mod ordered_map;
mod permissions;
mod pubsub;
mod random;
mod redis_library;
mod replication;
mod scan;
mod script_run;
mod scripting;
mod sentinel;
mod sentinel_commands;
mod server;
mod sets;
mod sorted_set;
mod sorted_sets;
mod stream;
mod strings;
mod struct_pack;
mod topology;
mod transactions;
mod value;
mod zrange;

pub use clock::Clock;
pub use cluster::Cluster;
pub use cluster_slots::{SLOTS, slot_of};
pub use decoder::{Decoder, ProtocolError};
pub use network::{Counts, MessageFault, Network, Service};
pub use random::Random;
pub use sentinel::Sentinel;
pub use server::{Fault, KeyState, Server};
pub use stream::Stream;
pub use topology::{Layout, Topology};
pub use value::Value;
