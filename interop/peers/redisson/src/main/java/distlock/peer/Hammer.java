package distlock.peer;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/**
 * Many threads that add one to a counter under a lock, by reading and then writing it, and log when they held it.
 *
 * <p>Each grant is a line of the log, `name who from to`, with the machine's monotonic clock: from after the lock was
 * granted until before it is released; and, for a fenced lock, its token. Our own workers write the same.
 */
final class Hammer {
    private final Clients clients;
    private volatile boolean stopped;

    Hammer(Clients clients) {
        this.clients = clients;
    }

    Map<String, Deed> deeds() {
        return Map.of("hammer", this::hammer, "stop", command -> stopped = true);
    }

    /**
     * `names`, `threads`, `millis`, `moment`: how long permits are kept at most, `seed`, `log`, `who`, `shared`: which
     * lock, and the `manner`: `alike` if all lock in the same way, `mixed` if in all the ways there are, `unlocked` for a
     * control run.
     */
    private Object hammer(Command command) throws InterruptedException {
        stopped = false;
        Clients.Client client = clients.of(command);
        RedissonClient redisson = client.redisson();
        List<String> names = command.texts("names");
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(command.number("millis"));
        String manner = command.text("manner");
        String shared = command.text("shared");
        int moment = (int) command.number("moment");
        AtomicLong grants = new AtomicLong();
        AtomicLong refused = new AtomicLong();
        AtomicReference<Throwable> failure = new AtomicReference<>();

        try (PrintWriter log = new PrintWriter(
                Files.newBufferedWriter(Path.of(command.text("log")), StandardCharsets.UTF_8))) {
            List<Thread> threads = new ArrayList<>();
            for (int index = 0; index < command.number("threads"); index++) {
                int number = index;
                String who = command.text("who") + "/" + index;
                Random random = new Random(command.number("seed") + index);
                threads.add(new Thread(() -> {
                    try {
                        while (!stopped && failure.get() == null && System.nanoTime() < end) {
                            String name = names.get(random.nextInt(names.size()));
                            boolean granted = switch (shared) {
                                case "read-write" ->
                                    ReadWrite.turn(redisson, name, who, number, manner, random, log);
                                case "counting" -> Counting.turn(redisson, name, who, number, moment, random, log);
                                case "semaphore" -> Semaphores.turn(redisson, name, who, number, moment, random, log);
                                default -> turn(client, shared, name, who, number, manner, random, log);
                            };
                            (granted ? grants : refused).incrementAndGet();
                        }
                    } catch (Throwable problem) {
                        failure.compareAndSet(null, problem);
                    }
                }, who));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        if (failure.get() != null) {
            throw new IllegalStateException("a thread of the hammer failed: " + failure.get(), failure.get());
        }
        return Map.of("grants", grants.get(), "refused", refused.get());
    }

    /** One grant, if it comes. The ways to lock are spread over the threads. */
    private static boolean turn(
            Clients.Client client,
            String shared,
            String name,
            String who,
            int number,
            String manner,
            Random random,
            PrintWriter log)
            throws Exception {
        RLock lock = Locks.of(client, shared, name);
        boolean fenced = shared.equals("fenced");
        boolean locked = !manner.equals("unlocked");
        int way = manner.equals("mixed") ? number % 8 : 0;
        boolean twice = way == 5;
        String token = "";
        if (locked && fenced) {
            Long told = switch (way) {
                case 7 -> Fenced.tryLock(lock, 2_000, -1);
                case 6 -> Fenced.lock(lock, 10_000);
                default -> Fenced.lock(lock, -1);
            };
            if (told == null) {
                return false;
            }
            token = " " + told;
            if (twice) {
                lock.lock();
            }
        } else if (locked) {
            switch (way) {
                case 7 -> {
                    if (!lock.tryLock(2_000, -1, TimeUnit.MILLISECONDS)) {
                        return false;
                    }
                }
                case 6 -> lock.lock(10_000, TimeUnit.MILLISECONDS);
                default -> lock.lock();
            }
            if (twice) {
                lock.lock();
            }
        }
        long from = System.nanoTime();
        RBucket<String> counter = client.redisson().getBucket("counter:" + name, StringCodec.INSTANCE);
        String value = counter.get();
        if (!manner.equals("alike") && random.nextInt(16) == 0) {
            TimeUnit.MILLISECONDS.sleep(1);
        }
        counter.set(Long.toString(value == null ? 1 : Long.parseLong(value) + 1));
        long to = System.nanoTime();
        // One call writes one line; PrintWriter keeps lines of several threads apart.
        log.println(name + " " + who + " " + from + " " + to + token);
        if (locked) {
            if (twice) {
                lock.unlock();
            }
            lock.unlock();
        }
        return true;
    }
}
