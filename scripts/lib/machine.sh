# What a machine that is not ours alone does to what runs on it. Sourced, not run.

# disturbances: says, for as long as whoever sourced it lives, whenever the machine was taken from us: nothing ran for a quarter
# of a second, others had half of its processors for a second, or its clock was set, by which Redis ends leases. We do none of
# this ourselves, however busy we are. Says nothing where there is no /proc.
disturbances() {
    local never up last second=0 started clock stolen total field fields was_started was_stolen was_total
    [[ -r /proc/uptime && -r /proc/stat ]] || return 0
    exec {never}<> <(:)
    read -r last _ </proc/uptime
    last=$((10#${last/./}))
    while kill -0 $$ 2>/dev/null; do
        read -r -t 0.1 -u "$never" || true
        read -r up _ </proc/uptime
        up=$((10#${up/./}))
        ((up - last < 35)) || echo "it stood still for $(((up - last) * 10)) ms"
        last=$up
        ((up - second >= 100)) || continue
        clock=$((${EPOCHREALTIME//[!0-9]/} / 10000))
        started=$((clock - up))
        # The processors' time: what ours was spent on, and last what others had of it.
        read -r -a fields </proc/stat
        stolen=${fields[8]:-0}
        total=0
        for field in "${fields[@]:1:8}"; do
            total=$((total + field))
        done
        if ((second)); then
            ((started - was_started <= 10 && was_started - started <= 10)) ||
                echo "its clock was set by $(((started - was_started) * 10)) ms"
            ((total == was_total || 2 * (stolen - was_stolen) < total - was_total)) ||
                echo "others had $((100 * (stolen - was_stolen) / (total - was_total)))% of it for a second"
        fi
        second=$up was_started=$started was_stolen=$stolen was_total=$total
    done
}
