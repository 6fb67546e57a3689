package distlock.peer;

import java.io.PrintWriter;
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
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * Threads that wait for one fair lock, each for a while and `rounds` times. A thread that acquires it holds it for a moment and
 * writes the line that the hammer writes.
 */
final class Mix {
    private final Clients clients;

    Mix(Clients clients) {
        this.clients = clients;
    }

    Map<String, Deed> deeds() {
        return Map.of("mix", this::mix);
    }

    /** `name`, `threads`, `rounds`, `shortest` and `longest` wait in ms, `seed`, `log`, `who`. */
    private Object mix(Command command) throws Exception {
        RedissonClient redisson = clients.of(command).redisson();
        String name = command.text("name");
        long shortest = command.number("shortest");
        int range = (int) (command.number("longest") - shortest);
        AtomicLong grants = new AtomicLong();
        AtomicLong refused = new AtomicLong();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        try (PrintWriter log = new PrintWriter(
                Files.newBufferedWriter(Path.of(command.text("log")), StandardCharsets.UTF_8))) {
            List<Thread> threads = new ArrayList<>();
            for (int index = 0; index < command.number("threads"); index++) {
                String who = command.text("who") + "/" + index;
                Random random = new Random(command.number("seed") + index);
                threads.add(new Thread(() -> {
                    try {
                        RLock lock = redisson.getFairLock(name);
                        for (long round = 0; round < command.number("rounds"); round++) {
                            long wait = shortest + random.nextInt(range);
                            if (!lock.tryLock(wait, TimeUnit.MILLISECONDS)) {
                                refused.incrementAndGet();
                                continue;
                            }
                            long from = System.nanoTime();
                            TimeUnit.MILLISECONDS.sleep(random.nextInt(10));
                            log.println(name + " " + who + " " + from + " " + System.nanoTime());
                            lock.unlock();
                            grants.incrementAndGet();
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
        }
        if (failure.get() != null) {
            throw new IllegalStateException("a thread of the mix failed: " + failure.get(), failure.get());
        }
        return Map.of("grants", grants.get(), "refused", refused.get());
    }
}
