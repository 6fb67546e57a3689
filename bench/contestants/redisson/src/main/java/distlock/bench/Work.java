package distlock.bench;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A work order of the orchestrator. Its line is flat and its values are plain, so no library is needed to parse it. */
record Work(String url, String job, int callers, int names, double seconds, double warmup) {
    static Work read(String line) {
        return new Work(
                field(line, "url"),
                field(line, "job"),
                Integer.parseInt(field(line, "callers")),
                Integer.parseInt(field(line, "names")),
                Double.parseDouble(field(line, "seconds")),
                Double.parseDouble(field(line, "warmup")));
    }

    /** Returns the same work for few callers and on names of their own: to warm up processes that will wait or hold later. */
    Work withFewCallers() {
        int few = Math.min(callers, 64);
        return new Work(url, job, few, few, seconds, warmup);
    }

    /** Returns the name of a caller's n-th cycle. */
    String nameOf(int caller, long cycle) {
        if (names == 1) {
            return name(0);
        }
        int each = names / callers;
        return name(caller * each + (int) (cycle % each));
    }

    static String name(int number) {
        return "bench:" + number;
    }

    static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ") + '"';
    }

    private static String field(String line, String name) {
        Matcher matcher = Pattern.compile('"' + name + "\":\\s*\"?([^\",}]*)").matcher(line);
        if (!matcher.find()) {
            throw new IllegalArgumentException("`" + name + "` is missing in " + line);
        }
        return matcher.group(1);
    }
}
