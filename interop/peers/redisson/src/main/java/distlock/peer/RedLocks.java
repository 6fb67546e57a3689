package distlock.peer;

import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.config.Config;

/** One lock on most of several servers: a plain lock of the same name on each, in a RedissonRedLock. */
final class RedLocks {
    private RedLocks() {}

    @SuppressWarnings("deprecation") // It is what others still use, and there is nothing else to be had on most servers.
    static RLock of(Clients.Client client, String name) {
        RLock[] each = client.servers().stream().map(redisson -> redisson.getLock(name)).toArray(RLock[]::new);
        return new RedissonRedLock(each);
    }

    /** One of several servers that hangs or is dead must not hold up the others. */
    @SuppressWarnings("deprecation") // What has taken the interval's place is not in the older versions.
    static void beImpatient(Config config, int patience) {
        config.useSingleServer()
                .setTimeout(patience)
                .setConnectTimeout(patience)
                .setRetryAttempts(0)
                .setRetryInterval(100);
    }
}
