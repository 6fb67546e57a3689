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
import org.redisson.config.ReadMode;

/** The Redisson clients of this JVM, by the names the harness gives them. */
final class Clients {
    /** The harness looks who listens. */
    private static final String NAME = "redisson";

    private final Map<String, Client> clients = new ConcurrentHashMap<>();

    /**
     * A client of each server, of which most locks use the first alone, and the prefix that it has to put before a name
     * itself if its version has no NameMapper.
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
     * Connects to the `address`, or `sentinels` and their name of the `master`, or the `nodes` of a cluster, or
     * `addresses` of several servers and the `patience` with each in ms; `watchdog` in ms, `prefix`, `fair_wait` in ms.
     * Returns how the prefix is added, and whether this version can configure how long a waiter for a fair lock may be
     * silent.
     */
    private Object connect(Command command) throws ReflectiveOperationException {
        List<RedissonClient> servers = new ArrayList<>();
        boolean mapped = true;
        boolean waits = true;
        String prefix = command.text("prefix", "");
        for (Config config : configs(command)) {
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

    private static List<Config> configs(Command command) {
        String address = command.text("address", null);
        if (address != null) {
            return List.of(single(command, address));
        }
        String master = command.text("master", null);
        if (master != null) {
            return List.of(behindSentinels(command, master));
        }
        if (command.has("nodes")) {
            return List.of(inCluster(command));
        }
        List<Config> configs = new ArrayList<>();
        for (String one : command.texts("addresses")) {
            Config config = single(command, one);
            RedLocks.beImpatient(config, (int) command.number("patience", A_MINUTE));
            configs.add(config);
        }
        return configs;
    }

    /** A busy machine is slow, and its servers are up. */
    private static final int A_MINUTE = 60_000;

    private static Config single(Command command, String address) {
        Config config = common(command);
        config.useSingleServer()
                .setAddress(address)
                .setTimeout(A_MINUTE)
                .setConnectTimeout(A_MINUTE)
                .setClientName(NAME)
                .setConnectionMinimumIdleSize(2)
                .setSubscriptionConnectionMinimumIdleSize(1);
        return config;
    }

    private static Config behindSentinels(Command command, String master) {
        Config config = common(command);
        config.useSentinelServers()
                .setMasterName(master)
                .addSentinelAddress(command.texts("sentinels").toArray(String[]::new))
                // The reply of a replica to whether a lock is held may be stale.
                .setReadMode(ReadMode.MASTER)
                .setClientName(NAME)
                .setMasterConnectionMinimumIdleSize(2)
                .setSlaveConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionMinimumIdleSize(1);
        return config;
    }

    private static Config inCluster(Command command) {
        Config config = common(command);
        config.useClusterServers()
                .addNodeAddress(command.texts("nodes").toArray(String[]::new))
                .setReadMode(ReadMode.MASTER)
                .setScanInterval(1_000)
                .setClientName(NAME)
                .setMasterConnectionMinimumIdleSize(2)
                .setSlaveConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionMinimumIdleSize(1);
        return config;
    }

    private static Config common(Command command) {
        Config config = new Config();
        // The codec is for values; locks never use it. The default ones do not all start on every Java.
        config.setCodec(StringCodec.INSTANCE);
        config.setThreads(4);
        config.setNettyThreads(4);
        config.setLockWatchdogTimeout(command.number("watchdog", config.getLockWatchdogTimeout()));
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
     * Sets a NameMapper that adds the prefix, where the version has one. It uses reflection: one source tree
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
