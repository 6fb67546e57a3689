package distlock.peer;

import java.io.PrintWriter;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/**
 * The counting semaphore, Redisson's RSemaphore. A wait is milliseconds; one of -1 has no end, and one of 0 sends one
 * request.
 */
final class Counting {
    private final Clients clients;

    Counting(Clients clients) {
        this.clients = clients;
    }

    Map<String, Deed> deeds() {
        Map<String, Deed> deeds = new HashMap<>();
        deeds.put("counting_take", command -> take(named(command), count(command), command.number("wait")));
        deeds.put("counting_release", command -> {
            named(command).release(count(command));
            return true;
        });
        deeds.put("counting_available", command -> named(command).availablePermits());
        deeds.put("counting_try_set", command -> named(command).trySetPermits(count(command)));
        deeds.put("counting_add", command -> {
            named(command).addPermits(count(command));
            return true;
        });
        deeds.put("counting_drain", command -> named(command).drainPermits());
        deeds.put("counting_delete", command -> named(command).delete());
        return deeds;
    }

    /**
     * Plays a turn of the hammer, with a line of its log for each permit. Our own workers do the same, and keep the same
     * record: a permit that is possibly in use is recorded before its request, one that is certainly in use after its grant.
     */
    static boolean turn(
            RedissonClient redisson,
            String name,
            String who,
            int number,
            int moment,
            Random random,
            PrintWriter log)
            throws Exception {
        RSemaphore semaphore = redisson.getSemaphore(name);
        RAtomicLong perhaps = redisson.getAtomicLong("perhaps:" + name);
        RAtomicLong certain = redisson.getAtomicLong("certain:" + name);
        int count = 1 + random.nextInt(3);
        perhaps.addAndGet(count);
        if (!take(semaphore, count, number % 8 == 7 ? 2_000 : -1)) {
            perhaps.addAndGet(-count);
            return false;
        }
        long from = System.nanoTime();
        certain.addAndGet(count);
        TimeUnit.MILLISECONDS.sleep(random.nextInt(moment));
        certain.addAndGet(-count);
        long to = System.nanoTime();
        semaphore.release(count);
        perhaps.addAndGet(-count);
        for (int permit = 0; permit < count; permit++) {
            log.println(name + " " + who + " " + from + " " + to);
        }
        return true;
    }

    @SuppressWarnings("deprecation") // Its replacement came after 3.13.6.
    private static boolean take(RSemaphore semaphore, int count, long wait) throws InterruptedException {
        if (wait < 0) {
            semaphore.acquire(count);
            return true;
        }
        return wait == 0 ? semaphore.tryAcquire(count) : semaphore.tryAcquire(count, wait, TimeUnit.MILLISECONDS);
    }

    private static int count(Command command) {
        return (int) command.number("count");
    }

    private RSemaphore named(Command command) {
        Clients.Client client = clients.of(command);
        return client.redisson().getSemaphore(client.mapped(command.text("name")));
    }
}
