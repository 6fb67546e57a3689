# Installs what a script needs and does not find. Sourced, not run.

give_up() {
    printf "scripts/${0##*/}: %s\n" "$@" >&2
    exit 1
}

# install PACKAGE WHAT: installs a Debian package. Says what was wanted if that cannot be done.
install() {
    local package=$1 as_root=()
    local wanted="$2 is missing; install it (the package $package on Debian and Ubuntu), then run this again"
    command -v apt-get >/dev/null || give_up "$wanted"
    if [[ $EUID -ne 0 ]]; then
        command -v sudo >/dev/null || give_up "$wanted"
        as_root=(sudo)
    fi
    echo "==> $2 is missing: installing the package $package" >&2

    # Debian starts a service on port 6379 with redis-server. Nothing here wants it, so it must not stay:
    # - Without systemd, `invoke-rc.d` starts only what the current runlevel starts. RUNLEVEL=1, single user,
    #   says that is nothing, for this one command; a policy-rc.d would say it to every other installation meanwhile.
    # - systemd does not ask, so there the service is stopped and disabled again.
    "${as_root[@]}" apt-get update >&2 || give_up "$wanted"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install --yes --no-install-recommends "$package" >&2 || give_up "$wanted"
    if [[ $package == redis-server && -d /run/systemd/system ]]; then
        "${as_root[@]}" systemctl disable --now redis-server
    fi
}
