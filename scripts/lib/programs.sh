# Builds this workspace's own programs. Sourced, not run.

# dev_program NAME: the path of a program in the profile of the tests, and with the same features: what `scripts/test` has built is
# not built again.
dev_program() {
    # With the tests, since without them dependencies have other features, and are built once more.
    cargo build --quiet --workspace --all-features --bins --tests || return
    echo "${CARGO_TARGET_DIR:-target}/debug/$1"
}
