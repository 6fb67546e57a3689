# What test programs have said. Sourced, not run.

# sum WORD LOG: how many tests passed, or failed.
sum() {
    sed -n "s/^test result: .* \\([0-9]*\\) $1.*/\\1/p" "$2" | awk '{ sum += $1 } END { print sum + 0 }'
}
