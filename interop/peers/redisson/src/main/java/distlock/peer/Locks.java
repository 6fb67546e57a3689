package distlock.peer;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RMap;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/**
 * The plain lock, Redisson's RLock, or by its `kind` the `fair`, `fenced`, `read` or `write` one, the `multi` lock of
 * several plain ones, `a+b`, or the `quorum` one on a majority of servers. Times are milliseconds; a lease of -1 is
 * renewed by the watchdog. The owner is the thread of the command, or the thread with the id `as`.
 */
final class Locks {
    private final Clients clients;

    /** One object per thread, client and name, as a method that locks and unlocks in one place would have it. */
    private final ThreadLocal<Map<String, RLock>> mine = ThreadLocal.withInitial(HashMap::new);

    /** The token that the last acquire of each of a thread's fenced locks returned. */
    private final ThreadLocal<Map<RLock, Long>> tokens = ThreadLocal.withInitial(HashMap::new);

    Locks(Clients clients) {
        this.clients = clients;
    }

    Map<String, Deed> deeds() {
        // There are more entries than `Map.of` accepts.
        Map<String, Deed> deeds = new HashMap<>();
        deeds.put("token", this::token);
        deeds.putAll(Map.of(
                "lock", this::lock,
                "try_lock", this::tryLock,
                "unlock", this::unlock,
                "force_unlock", command -> named(command).forceUnlock(),
                "is_locked", this::isLocked,
                "is_mine", command -> named(command).isHeldByThread(AnyThread.id(command)),
                "hold_count", this::holdCount,
                "ttl", command -> named(command).remainTimeToLive(),
                "holders", this::holders,
                "owner", this::owner));
        return deeds;
    }

    private Object lock(Command command) throws Exception {
        if (AnyThread.isMeant(command)) {
            return AnyThread.lock(named(command), command);
        }
        long lease = command.number("lease", -1);
        if (isFenced(command)) {
            tokens.get().put(named(command), Fenced.lock(named(command), lease));
        } else if (lease < 0) {
            named(command).lock();
        } else {
            named(command).lock(lease, TimeUnit.MILLISECONDS);
        }
        return true;
    }

    /** Tries to acquire the lock. Without `wait` and `lease` it is the `tryLock()` that sends one request. */
    private Object tryLock(Command command) throws Exception {
        if (AnyThread.isMeant(command)) {
            return AnyThread.tryLock(named(command), command);
        }
        long wait = command.number("wait", -1);
        long lease = command.number("lease", -1);
        if (isFenced(command)) {
            Long token = Fenced.tryLock(named(command), wait, lease);
            if (token != null) {
                tokens.get().put(named(command), token);
            }
            return token != null;
        }
        if (wait < 0 && lease < 0) {
            return named(command).tryLock();
        }
        return named(command).tryLock(Math.max(wait, 0), lease, TimeUnit.MILLISECONDS);
    }

    private Object unlock(Command command) throws Exception {
        if (AnyThread.isMeant(command)) {
            AnyThread.unlock(named(command), command);
        } else {
            named(command).unlock();
        }
        return true;
    }

    /** Redisson counts the holds of the calling thread only; those of another id are read from the hash. */
    private Object holdCount(Command command) throws Exception {
        if (!AnyThread.isMeant(command)) {
            return named(command).getHoldCount();
        }
        Object count = map(command).get(owner(command));
        return count == null ? 0 : Long.parseLong((String) count);
    }

    /** Reports whether the lock is held. A multi lock itself cannot report it, so all its locks are checked. */
    private Object isLocked(Command command) throws Exception {
        if (!command.text("kind", "plain").equals("multi")) {
            return named(command).isLocked();
        }
        RLock[] all = all(clients.of(command).redisson(), command.text("name"));
        return Arrays.stream(all).allMatch(RLock::isLocked);
    }

    /** Returns everything Redisson can see of the holders of a lock: owner by owner, the hold count. */
    private Object holders(Command command) {
        return map(command).readAllMap();
    }

    private RMap<Object, Object> map(Command command) {
        Clients.Client client = clients.of(command);
        String name = client.mapped(command.text("name"));
        return client.redisson().getMap(name, StringCodec.INSTANCE);
    }

    /** Returns the owner id in Redis when this thread holds a lock. */
    private Object owner(Command command) {
        return clients.of(command).redisson().getId() + ":" + AnyThread.id(command);
    }

    /** Returns the token of this thread's last acquire of a fenced lock, as long as the lock itself returns the same. */
    private Object token(Command command) throws Exception {
        Long told = tokens.get().get(named(command));
        Long now = Fenced.token(named(command));
        if (told == null || !told.equals(now)) {
            throw new IllegalStateException("it was told " + told + ", and getToken() says " + now);
        }
        return told;
    }

    private static boolean isFenced(Command command) {
        return command.text("kind", "plain").equals("fenced");
    }

    /** Returns the lock of this kind and name. */
    static RLock of(Clients.Client client, String kind, String name) throws Exception {
        RedissonClient redisson = client.redisson();
        return switch (kind) {
            case "fair" -> redisson.getFairLock(name);
            case "fenced" -> Fenced.named(redisson, name);
            case "multi" -> redisson.getMultiLock(all(redisson, name));
            case "plain" -> redisson.getLock(name);
            case "quorum" -> RedLocks.of(client, name);
            default -> ReadWrite.side(redisson, name, kind);
        };
    }

    /** Returns the locks in the order in which they are named. */
    private static RLock[] all(RedissonClient redisson, String names) {
        return Arrays.stream(names.split("\\+")).map(redisson::getLock).toArray(RLock[]::new);
    }

    private RLock named(Command command) throws Exception {
        Clients.Client client = clients.of(command);
        String name = command.text("name");
        String kind = command.text("kind", "plain");
        String key = client.redisson().getId() + ":" + kind + ":" + name;
        RLock lock = mine.get().get(key);
        if (lock == null) {
            String mapped = client.mapped(name);
            lock = of(client, kind, mapped);
            mine.get().put(key, lock);
        }
        return lock;
    }
}
