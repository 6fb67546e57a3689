package distlock.peer;

import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** The Redisson clients of this JVM, by the names the harness gives them. */
final class Clients {
    private final Map<String, Client> clients = new ConcurrentHashMap<>();

    /**
     * A client of each server, of which most lock on the first alone, and what it has to put before a name itself because
     * its version has no NameMapper.
     */
    record Client(List<RedissonClient> servers, String prefix) {
        RedissonClient redisson() {
            return servers.get(0);
        }

        String mapped(String name) {
            return prefix + name;
        }

        void shutdown() {
            servers.forEach(redisson -> redisson.shutdown(0, 2, TimeUnit.SECONDS));
        }
    }

    Map<String, Deed> deeds() {
        return Map.of("connect", this::connect, "close", this::close);
    }

    Client of(Command command) {
        Client client = clients.get(command.client());
        if (client == null) {
            throw new IllegalStateException("there is no client `" + command.client() + "`; connect first");
        }
        return client;
    }

    /** Ends every connection, so that what is under way is answered first. */
    void closeAll() {
        clients.values().forEach(Client::shutdown);
        clients.clear();
    }

    /**
     * `address`, or `addresses` of several servers and the `patience` with each in ms, `watchdog` in ms, `prefix`,
     * `fair_wait` in ms; says by which means the prefix is put, and whether this version can be told how long a waiter for a
     * fair lock may be silent.
     */
    private Object connect(Command command) throws ReflectiveOperationException {
        String one = command.text("address", null);
        List<String> addresses = one != null ? List.of(one) : command.texts("addresses");
        List<RedissonClient> servers = new ArrayList<>();
        boolean mapped = true;
        boolean waits = true;
        String prefix = command.text("prefix", "");
        for (String address : addresses) {
            Config config = config(command, address);
            if (addresses.size() > 1) {
                RedLocks.beImpatient(config, (int) command.number("patience", 2_000));
            }
            mapped = prefix.isEmpty() || setNameMapper(config, prefix);
            waits = setFairLockWaitTimeout(config, command.number("fair_wait", 300_000));
            servers.add(Redisson.create(config));
        }
        Client old = clients.put(command.client(), new Client(servers, mapped ? "" : prefix));
        if (old != null) {
            old.shutdown();
        }
        return Map.of(
                "uuid", servers.get(0).getId(), "prefix", mapped ? "NameMapper" : "name", "fair_wait", waits);
    }

    private static Config config(Command command, String address) {
        Config config = new Config();
        // The codec is for values; locks never use it. The default ones do not all start on every Java.
        config.setCodec(StringCodec.INSTANCE);
        config.setThreads(4);
        config.setNettyThreads(4);
        config.setLockWatchdogTimeout(command.number("watchdog", config.getLockWatchdogTimeout()));
        config.useSingleServer()
                .setAddress(address)
                // The harness looks who listens.
                .setClientName("redisson")
                .setConnectionMinimumIdleSize(2)
                .setSubscriptionConnectionMinimumIdleSize(1);
        return config;
    }

    private Object close(Command command) {
        Client client = clients.remove(command.client());
        if (client != null) {
            client.shutdown();
        }
        return client != null;
    }

    private static boolean setFairLockWaitTimeout(Config config, long millis) throws ReflectiveOperationException {
        try {
            Config.class.getMethod("setFairLockWaitTimeout", long.class).invoke(config, millis);
            return true;
        } catch (NoSuchMethodException absent) {
            return false;
        }
    }

    /**
     * Sets a NameMapper that puts the prefix, where the version knows such a thing. By reflection: one source tree
     * is compiled against versions with and without it.
     */
    private static boolean setNameMapper(Config config, String prefix) throws ReflectiveOperationException {
        Class<?> type;
        try {
            type = Class.forName("org.redisson.config.NameMapper");
        } catch (ClassNotFoundException absent) {
            return false;
        }
        Object mapper = Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (self, method, args) ->
                switch (method.getName()) {
                    case "map" -> prefix + args[0];
                    case "unmap" -> ((String) args[0]).substring(prefix.length());
                    case "hashCode" -> System.identityHashCode(self);
                    case "equals" -> self == args[0];
                    default -> "prefix " + prefix;
                });
        Method setter = Config.class.getMethod("setNameMapper", type);
        setter.invoke(config, mapper);
        return true;
    }
}
