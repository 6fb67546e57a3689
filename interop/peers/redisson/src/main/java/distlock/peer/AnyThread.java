package distlock.peer;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RFuture;
import org.redisson.api.RLock;

/** Locks for a thread id of the caller's choice, `as`: Redisson's asynchronous calls accept any number. */
final class AnyThread {
    private AnyThread() {}

    static boolean isMeant(Command command) {
        return command.has("as");
    }

    static long id(Command command) {
        return isMeant(command) ? command.number("as") : Thread.currentThread().getId();
    }

    static Object lock(RLock lock, Command command) throws Exception {
        long lease = command.number("lease", -1);
        if (lease < 0) {
            await(lock.lockAsync(id(command)));
        } else {
            await(lock.lockAsync(lease, TimeUnit.MILLISECONDS, id(command)));
        }
        return true;
    }

    /** Tries to acquire the lock. Without `wait` and `lease` it sends one request. */
    static Object tryLock(RLock lock, Command command) throws Exception {
        long wait = command.number("wait", -1);
        long lease = command.number("lease", -1);
        if (wait < 0 && lease < 0) {
            return await(lock.tryLockAsync(id(command)));
        }
        return await(lock.tryLockAsync(Math.max(wait, 0), lease, TimeUnit.MILLISECONDS, id(command)));
    }

    static void unlock(RLock lock, Command command) throws Exception {
        await(lock.unlockAsync(id(command)));
    }

    private static <T> T await(RFuture<T> future) throws Exception {
        try {
            return future.get();
        } catch (ExecutionException thrown) {
            throw thrown.getCause() instanceof Exception cause ? cause : thrown;
        }
    }
}
