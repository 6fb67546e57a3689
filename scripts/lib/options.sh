# Checks the options of a script. Sourced, not run.

# Variables that the user's shell exports must not select what is played; only the options do. DISTLOCK_TRACE and DISTLOCK_THREADS, which
# change the output and the speed, may be exported.
unset DISTLOCK_SEED DISTLOCK_SEEDS DISTLOCK_FIRST_SEED DISTLOCK_SECONDS DISTLOCK_SCENARIOS DISTLOCK_FAULTS DISTLOCK_PLANTED DISTLOCK_MUTANT \
    DISTLOCK_SEQUENCES

# help: prints the comment at the head of the script.
help() { sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "$0"; }

# refuse WORD…: ends the script with one line and the code for a command that is used in a wrong way.
refuse() {
    echo "scripts/${0##*/}: $*" >&2
    exit 64
}

# expect OPTION VALUE PATTERN WANTED: refuses a value that does not match.
expect() { [[ $2 =~ ^($3)$ ]] || refuse "$1 wants $4, not \`$2\`"; }

# count OPTION VALUE: a number of at least 1.
count() { expect "$1" "$2" '0*[1-9][0-9]{0,17}' 'a whole number from 1 on'; }

# seed OPTION VALUE
seed() { expect "$1" "$2" '[0-9]{1,18}' 'the number of a seed'; }

# minutes OPTION VALUE: a positive number, with decimals if need be.
minutes() {
    expect "$1" "$2" '[0-9]{1,6}(\.[0-9]{1,3})?' 'a number of minutes, such as 60 or 0.5'
    [[ $2 == *[1-9]* ]] || refuse "$1 wants more than no time"
}

# listed KIND NAME <LIST: whether one of the lines that the simulation prints is of this kind and has this name.
listed() { awk -F '\t' -v kind="$1" -v name="$2" '$1 == kind && $2 == name { found = 1 } END { exit !found }'; }
