# What a machine that is not ours alone does to what runs on it. Sourced, not run. `interop/src/machine.rs` goes by the same.

# disturbances: says, for as long as whoever sourced it lives, whenever the machine was taken from us: it is a quarter of a second
# late, and we had less than half of the processors meanwhile; others had half of them for a second; or the clock was set, by
# which Redis ends leases. Says nothing where there is no /proc.
disturbances() {
    local never processors up again late second=0 last=0 clock started user nice system idle waiting hard soft ours others all
    local was_ours was_started second_others second_all
    # Which a test can make up.
    local proc=${PROC:-/proc}
    [[ -r $proc/uptime && -r $proc/stat ]] || return 0
    processors=$(grep --count '^cpu[0-9]' "$proc/stat")
    exec {never}<> <(:)
    while kill -0 $$ 2>/dev/null; do
        read -r -t 0.1 -u "$never" || true
        # All in hundredths of a second. What the processors' time was spent on, the fourth and fifth on nothing.
        read -r _ user nice system idle waiting hard soft others _ <"$proc/stat"
        read -r up _ <"$proc/uptime"
        clock=$((${EPOCHREALTIME//[!0-9]/} / 10000))
        read -r again _ <"$proc/uptime"
        up=$((10#${up/./})) again=$((10#${again/./}))
        ours=$((user + nice + system + hard + soft))
        all=$((ours + idle + waiting + others))
        if ((last)); then
            late=$((up - last - 10))
            ((late < 25 || 2 * (ours - was_ours) >= late * processors)) || echo "it stood still for $((late * 10)) ms"
        fi
        last=$up was_ours=$ours
        # Who is interrupted between the two compares nothing.
        ((up - second >= 100 && again - up <= 1)) || continue
        started=$((clock - up))
        if ((second)); then
            ((started - was_started <= 10 && was_started - started <= 10)) ||
                echo "its clock was set by $(((started - was_started) * 10)) ms"
            ((all == second_all || 2 * (others - second_others) < all - second_all)) ||
                echo "others had $((100 * (others - second_others) / (all - second_all)))% of it for a second"
        fi
        second=$up was_started=$started second_others=$others second_all=$all
    done
}
