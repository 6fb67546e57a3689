package distlock.bench;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * Redisson's RLock. It receives its work as lines of JSON, described in bench/src/line.rs. As `redisson` a thread is a
 * caller, as `redisson-async` a chain of lockAsync and unlockAsync is.
 */
final class Contestant {
    private final BufferedReader orders =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final PrintStream answers;
    private final boolean async;

    private Contestant(PrintStream answers, boolean async) {
        this.answers = answers;
        this.async = async;
    }

    public static void main(String[] args) throws IOException {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        // No other code may write between the replies.
        System.setOut(System.err);
        Contestant contestant = new Contestant(answers, args[0].equals("redisson-async"));
        for (String line = contestant.hear(); line != null; line = contestant.hear()) {
            try {
                contestant.perform(Work.read(line));
            } catch (Throwable error) {
                error.printStackTrace();
                contestant.say("{\"failed\":" + Work.quoted(error.toString()) + "}");
            }
        }
        Runtime.getRuntime().halt(0);
    }

    String hear() throws IOException {
        return orders.readLine();
    }

    void say(String json) {
        answers.println(json);
    }

    /** Reports that it is connected and warm; returns when it is to begin. */
    void ready() throws IOException {
        String version = Redisson.class.getPackage().getImplementationVersion();
        String java = System.getProperty("java.version");
        say("{\"ready\":true,\"version\":\"Redisson " + (version == null ? "4.7.0" : version) + ", Java " + java + "\"}");
        hear();
    }

    private void perform(Work work) throws Exception {
        if (work.job().equals("queue") && !async) {
            say("{\"cannot\":\"a thread for each waiter; see lockAsync\"}");
            return;
        }
        RedissonClient redisson = connect(work);
        try {
            Loops loops = async ? new Chains(redisson) : new Threads(redisson);
            Work few = work.withFewCallers();
            switch (work.job()) {
                case "cycle" -> {
                    loops.cycle(work, work.warmup());
                    ready();
                    say(loops.cycle(work, work.seconds()).json());
                }
                case "hold" -> {
                    loops.cycle(few, work.warmup());
                    ready();
                    loops.hold(work);
                    say("{\"held\":" + work.names() + "}");
                    hear();
                    // The orchestrator counts the locks on the server.
                    say("{\"lost\":0}");
                }
                case "queue" -> {
                    loops.cycle(few, work.warmup());
                    ready();
                    say("{\"waiting\":" + work.callers() + "}");
                    say(loops.queue(work).json());
                }
                case "step" -> {
                    ready();
                    steps(loops);
                }
                default -> throw new IllegalArgumentException(work.job());
            }
        } finally {
            redisson.shutdown(0, 5, TimeUnit.SECONDS);
        }
    }

    /** Acquires and releases one lock as ordered, and reports when. */
    private void steps(Loops loops) throws Exception {
        for (String word = hear(); !word.equals("end"); word = hear()) {
            long at;
            if (word.equals("lock")) {
                loops.lock(Work.name(0));
                at = System.nanoTime();
            } else {
                at = System.nanoTime();
                loops.unlock(Work.name(0));
            }
            say("{\"at\":" + at + "}");
        }
    }

    private static RedissonClient connect(Work work) {
        Config config = new Config();
        // The codec is for values; locks never use it.
        config.setCodec(StringCodec.INSTANCE);
        // All connections exist before the first lock; the numbers of connections are the defaults otherwise.
        config.useSingleServer()
                .setAddress(work.url().substring(0, work.url().length() - 1))
                .setConnectionMinimumIdleSize(64)
                .setConnectionPoolSize(64)
                .setTimeout(20_000);
        return Redisson.create(config);
    }
}
