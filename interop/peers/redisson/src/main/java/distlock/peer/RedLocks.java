package distlock.peer;

import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.config.Config;

/** One lock on most of several servers: a plain lock of the same name on each, in a RedissonRedLock. */
final class RedLocks {
    private RedLocks() {}

    @SuppressWarnings("deprecation") // Other programs still use it, and Redisson has no other lock on a majority of servers.
    static RLock of(Clients.Client client, String name) {
        RLock[] each = client.servers().stream().map(redisson -> redisson.getLock(name)).toArray(RLock[]::new);
        return new RedissonRedLock(each);
    }

    /** Shortens the timeouts, so that one of several servers that hangs or is dead does not delay the others. */
    @SuppressWarnings("deprecation") // The replacement of the interval is not in the older versions.
    static void beImpatient(Config config, int patience) {
        config.useSingleServer()
                .setTimeout(patience)
                .setConnectTimeout(patience)
                .setRetryAttempts(0)
                .setRetryInterval(100);
    }
}
