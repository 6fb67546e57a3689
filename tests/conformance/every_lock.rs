//! The behaviour that every kind of lock shares.

mod closing;
mod exclusion;
mod extending;
mod leases;
mod lookup;
mod loss;
mod names;
mod nesting;
mod reentry;
mod signals;
mod together;
mod waiting;
mod watching;
mod work;
