# Which test programs there are, and what they have said. Sourced, not run.

# groups: the groups of tests in the program `real`.
groups() {
    sed -n '/^mod support;/!s/^mod \([a-z_]*\);$/\1/p' tests/real/main.rs
}

# target GROUP: the program that a group of tests is in: one of its own, or `real`.
target() {
    if groups | grep --quiet --line-regexp "$1"; then echo real; else echo "$1"; fi
}

# filter GROUP: what names the tests of a group in its program, if there are others.
filter() {
    [[ $(target "$1") != real ]] || echo "$1::"
}

# sum WORD LOG: how many tests passed, or failed.
sum() {
    sed -n "s/^test result: .* \\([0-9]*\\) $1.*/\\1/p" "$2" | awk '{ sum += $1 } END { print sum + 0 }'
}
