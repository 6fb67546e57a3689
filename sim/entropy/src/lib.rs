//! A replacement of the C library's `getrandom`, so that a thread with a seed draws the same numbers in every run: client ids, jitter and
//! the order of hash maps.
//!
//! Only the simulation's own test program links this, and only as `scripts/simulate` builds it.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};

thread_local! {
    static STATE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Has this thread draw from the seed from now on.
pub fn seed(seed: u64) {
    STATE.set(Some(seed));
}

/// Fills the buffer like the C library's `getrandom`, and returns how many bytes were written.
///
/// # Safety
///
/// The buffer has that length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
    let seeded = STATE.try_with(Cell::get).ok().flatten();
    let Some(mut state) = seeded else {
        // SAFETY: the system call has the same arguments.
        let written = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
        return isize::try_from(written).unwrap_or(-1);
    };
    for place in 0..length {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // SAFETY: `place` is inside the buffer.
        unsafe { buffer.cast::<u8>().add(place).write((mixed >> 56) as u8) };
    }
    STATE.set(Some(state));
    isize::try_from(length).unwrap_or(-1)
}
