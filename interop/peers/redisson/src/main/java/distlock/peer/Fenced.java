package distlock.peer;

import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * The fenced lock: Redisson's RFencedLock, which is an RLock that returns tokens. It uses reflection: not every version
 * has it.
 */
final class Fenced {
    private Fenced() {}

    static RLock named(RedissonClient redisson, String name) throws Exception {
        return (RLock) Newer.call(RedissonClient.class, redisson, "getFencedLock", new Class<?>[] {String.class}, name);
    }

    /** Waits without end; the token. A lease of -1 is kept by the watchdog. */
    static long lock(RLock lock, long lease) throws Exception {
        if (lease < 0) {
            return (Long) Newer.call(type(), lock, "lockAndGetToken", new Class<?>[0]);
        }
        // lockAndGetToken(lease, unit) would ignore the lease.
        lock.lock(lease, TimeUnit.MILLISECONDS);
        return token(lock);
    }

    /** The token, or null if the wait was over before. With neither a wait nor a lease it asks once. */
    static Long tryLock(RLock lock, long wait, long lease) throws Exception {
        if (wait < 0 && lease < 0) {
            // tryLockAndGetToken() would wait without a timeout.
            return lock.tryLock() ? token(lock) : null;
        }
        Class<?>[] types = {long.class, long.class, TimeUnit.class};
        return (Long) Newer.call(type(), lock, "tryLockAndGetToken", types, Math.max(wait, 0), lease, TimeUnit.MILLISECONDS);
    }

    /** That of the last grant, whoever has it. */
    static Long token(RLock lock) throws Exception {
        return (Long) Newer.call(type(), lock, "getToken", new Class<?>[0]);
    }

    private static Class<?> type() throws ClassNotFoundException {
        return Class.forName("org.redisson.api.RFencedLock");
    }
}
