//! Encrypted connections: the features that work over them, and the errors when there is none.
//!
//! Servers are real, and certificates are made during the test.

#![cfg(all(feature = "tls", feature = "sqlite", feature = "blocking"))]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

mod ciphers;
mod clear;
mod clusters;
mod documents;
mod papers;
mod refused;
mod renewed;
mod watched;
mod working;

mod certificates;
mod stage;
