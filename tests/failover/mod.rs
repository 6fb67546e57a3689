//! A server that forgets: it restarts, or another takes its place.

mod delay;
mod durability;
mod meanwhile;
mod noticed;
mod pair;
