# Builds the simulation with all that is random seeded, and with the planted bugs, none of which is active. Sourced, not run.

# build_simulation: builds the test program in a target folder of its own, and sets `program` to its path.
build_simulation() {
    # Simulated time passes as fast as the library runs.
    cargo=(cargo --config profile.dev.package.distlock.opt-level=1 --config profile.dev.package.libsqlite3-sys.opt-level=0
        test --package distlock --no-default-features --features simulation,redis,internals --no-run)
    export RUSTFLAGS="${RUSTFLAGS:-} --cfg tokio_unstable --cfg distlock_planted"
    export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/simulation" CARGO_PROFILE_DEV_DEBUG=false RUST_BACKTRACE=0
    build_program simulation
}

# build_program TARGET: builds another test program in the same way, after `build_simulation`.
build_program() {
    "${cargo[@]}" --test "$1" >&2
    program=$("${cargo[@]}" --test "$1" --message-format json 2>/dev/null | grep -o "\"executable\":\"[^\"]*/$1-[^\"]*\"" | cut -d'"' -f4)
}
