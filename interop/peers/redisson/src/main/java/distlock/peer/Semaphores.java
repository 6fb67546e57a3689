package distlock.peer;

import java.io.PrintWriter;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;

/**
 * The semaphore whose permits are leased, Redisson's RPermitExpirableSemaphore. Times are milliseconds; a lease of -1 has
 * no end, a wait of -1 neither, and one of 0 sends one request.
 */
final class Semaphores {
    private static final Class<RPermitExpirableSemaphore> TYPE = RPermitExpirableSemaphore.class;

    /** The lease of a permit in the hammer; permits of a killed process come back after it. */
    private static final long HAMMER_LEASE = 4_000;

    private final Clients clients;

    Semaphores(Clients clients) {
        this.clients = clients;
    }

    Map<String, Deed> deeds() {
        Map<String, Deed> deeds = new HashMap<>();
        deeds.put("permits_take", command -> take(
                named(command),
                (int) command.number("count"),
                command.number("wait"),
                command.number("lease")));
        deeds.put("permits_release", this::release);
        deeds.put("permit_give_back", command -> named(command).tryRelease(command.text("permit")));
        deeds.put("permits_available", command -> named(command).availablePermits());
        deeds.put("permits_try_set", command -> named(command).trySetPermits((int) command.number("total")));
        deeds.put("permits_set", command -> {
            Newer.call(TYPE, named(command), "setPermits", new Class<?>[] {int.class}, (int) command.number("total"));
            return true;
        });
        deeds.put("permits_add", command -> {
            named(command).addPermits((int) command.number("count"));
            return true;
        });
        deeds.put("permits_delete", command -> named(command).delete());
        return deeds;
    }

    /** Returns the ids of this many permits; null if they were not available. */
    static List<String> take(RPermitExpirableSemaphore semaphore, int count, long wait, long lease) throws Exception {
        if (count == 1) {
            String id = takeOne(semaphore, wait, lease);
            return id == null ? null : List.of(id);
        }
        Class<?>[] types;
        Object[] words;
        if (wait <= 0 && lease < 0) {
            types = new Class<?>[] {int.class};
            words = new Object[] {count};
        } else if (wait < 0) {
            types = new Class<?>[] {int.class, long.class, TimeUnit.class};
            words = new Object[] {count, lease, TimeUnit.MILLISECONDS};
        } else {
            types = new Class<?>[] {int.class, long.class, long.class, TimeUnit.class};
            words = new Object[] {count, wait, lease, TimeUnit.MILLISECONDS};
        }
        List<?> ids = (List<?>) Newer.call(TYPE, semaphore, wait < 0 ? "acquire" : "tryAcquire", types, words);
        return ids == null || ids.isEmpty() ? null : ids.stream().map(String.class::cast).toList();
    }

    /** Plays a turn of the hammer, with a line of its log for each permit. Our own workers do the same. */
    static boolean turn(
            RedissonClient redisson,
            String name,
            String who,
            int number,
            int moment,
            Random random,
            PrintWriter log)
            throws Exception {
        RPermitExpirableSemaphore semaphore = redisson.getPermitExpirableSemaphore(name);
        int count = number % 4 == 3 && takesSeveral() ? 2 : 1;
        List<String> ids = take(semaphore, count, -1, HAMMER_LEASE);
        long from = System.nanoTime();
        TimeUnit.MILLISECONDS.sleep(random.nextInt(moment));
        long to = System.nanoTime();
        for (String id : ids) {
            if (!semaphore.tryRelease(id)) {
                throw new IllegalStateException("somebody has taken back a permit of " + who);
            }
            log.println(name + " " + who + " " + from + " " + to);
        }
        return true;
    }

    private static boolean takesSeveral() {
        return Arrays.stream(TYPE.getMethods()).anyMatch(method -> method.getReturnType() == List.class);
    }

    private static String takeOne(RPermitExpirableSemaphore semaphore, long wait, long lease)
            throws InterruptedException {
        if (wait < 0) {
            return lease < 0 ? semaphore.acquire() : semaphore.acquire(lease, TimeUnit.MILLISECONDS);
        }
        if (wait == 0 && lease < 0) {
            return semaphore.tryAcquire();
        }
        return semaphore.tryAcquire(wait, lease, TimeUnit.MILLISECONDS);
    }

    /** Releases permits; throws if they are not in use. */
    private Object release(Command command) throws Exception {
        List<String> ids = command.texts("permits");
        RPermitExpirableSemaphore semaphore = named(command);
        try {
            if (ids.size() == 1) {
                semaphore.release(ids.get(0));
            } else {
                Newer.call(TYPE, semaphore, "release", new Class<?>[] {List.class}, ids);
            }
        } catch (RedisException wrapped) {
            throw wrapped.getCause() instanceof IllegalArgumentException cause ? cause : wrapped;
        }
        return true;
    }

    private RPermitExpirableSemaphore named(Command command) {
        Clients.Client client = clients.of(command);
        RedissonClient redisson = client.redisson();
        return redisson.getPermitExpirableSemaphore(client.mapped(command.text("name")));
    }
}
