package distlock.bench;

import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;

/** The totals of callers: one tally for each, then added up. */
final class Tally {
    private long finished;
    private long[] took = new long[1024];
    private int count;
    private long handoffs;

    /**
     * Adds a cycle of this many nanoseconds; `passed` if another caller had the lock before, `over` if time was up
     * before its end.
     */
    void note(long nanos, boolean passed, boolean over) {
        finished++;
        if (over) {
            return;
        }
        handoffs += passed ? 1 : 0;
        if (count == took.length) {
            took = Arrays.copyOf(took, count * 2);
        }
        took[count++] = nanos;
    }

    static Sum sum(Tally[] callers, double seconds) {
        Map<Long, Long> latency = new TreeMap<>();
        long cycles = 0;
        long finished = 0;
        long handoffs = 0;
        long least = Long.MAX_VALUE;
        long most = 0;
        for (Tally caller : callers) {
            cycles += caller.count;
            finished += caller.finished;
            handoffs += caller.handoffs;
            least = Math.min(least, caller.count);
            most = Math.max(most, caller.count);
            for (int i = 0; i < caller.count; i++) {
                latency.merge(bucket(caller.took[i]), 1L, Long::sum);
            }
        }
        return new Sum(cycles, finished, seconds, latency, handoffs, least, most);
    }

    private static long bucket(long nanos) {
        int shift = Math.max(0, 63 - Long.numberOfLeadingZeros(Math.max(nanos, 1)) - 7);
        return shift * 128L + (nanos >> shift);
    }

    record Sum(
            long cycles,
            long finished,
            double seconds,
            Map<Long, Long> latency,
            long handoffs,
            long least,
            long most) {
        String json() {
            StringBuilder pairs = new StringBuilder();
            latency.forEach((bucket, count) -> {
                pairs.append(pairs.isEmpty() ? "" : ",");
                pairs.append('[').append(bucket).append(',').append(count).append(']');
            });
            return "{\"cycles\":" + cycles + ",\"finished\":" + finished + ",\"seconds\":" + seconds
                    + ",\"latency\":[" + pairs + "],\"handoffs\":" + handoffs + ",\"least\":" + least + ",\"most\":" + most + "}";
        }
    }
}
