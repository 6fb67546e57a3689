package distlock.peer;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.client.codec.StringCodec;

/** The plain lock: Redisson's RLock. Times are milliseconds; a lease of -1 is kept by the watchdog. */
final class Locks {
    private final Clients clients;

    /** One object per thread, client and name, as a method that locks and unlocks in one place would have it. */
    private final ThreadLocal<Map<String, RLock>> mine = ThreadLocal.withInitial(HashMap::new);

    Locks(Clients clients) {
        this.clients = clients;
    }

    Map<String, Deed> deeds() {
        return Map.of(
                "lock", this::lock,
                "try_lock", this::tryLock,
                "unlock", command -> {
                    named(command).unlock();
                    return true;
                },
                "force_unlock", command -> named(command).forceUnlock(),
                "is_locked", command -> named(command).isLocked(),
                "is_mine", command -> named(command).isHeldByCurrentThread(),
                "hold_count", command -> named(command).getHoldCount(),
                "ttl", command -> named(command).remainTimeToLive(),
                "holders", this::holders,
                "owner", this::owner);
    }

    private Object lock(Command command) {
        long lease = command.number("lease", -1);
        if (lease < 0) {
            named(command).lock();
        } else {
            named(command).lock(lease, TimeUnit.MILLISECONDS);
        }
        return true;
    }

    /** Without `wait` and `lease` it is the `tryLock()` that asks once. */
    private Object tryLock(Command command) throws InterruptedException {
        long wait = command.number("wait", -1);
        long lease = command.number("lease", -1);
        if (wait < 0 && lease < 0) {
            return named(command).tryLock();
        }
        return named(command).tryLock(Math.max(wait, 0), lease, TimeUnit.MILLISECONDS);
    }

    /** Everything Redisson can see of who holds a lock: owner by owner, how often. */
    private Object holders(Command command) {
        Clients.Client client = clients.of(command);
        String name = client.mapped(command.text("name"));
        return client.redisson().getMap(name, StringCodec.INSTANCE).readAllMap();
    }

    /** What stands in Redis when this thread holds a lock. */
    private Object owner(Command command) {
        return clients.of(command).redisson().getId() + ":" + Thread.currentThread().getId();
    }

    private RLock named(Command command) {
        Clients.Client client = clients.of(command);
        String name = command.text("name");
        String key = client.redisson().getId() + ":" + name;
        return mine.get().computeIfAbsent(key, absent -> client.redisson().getLock(client.mapped(name)));
    }
}
