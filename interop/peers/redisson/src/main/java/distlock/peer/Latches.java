package distlock.peer;

import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RCountDownLatch;

/** The latch, Redisson's RCountDownLatch. A wait is milliseconds; one of -1 has no end. */
final class Latches {
    private final Clients clients;

    Latches(Clients clients) {
        this.clients = clients;
    }

    Map<String, Deed> deeds() {
        return Map.of(
                "latch_try_set", command -> named(command).trySetCount(command.number("count")),
                "latch_down", command -> {
                    named(command).countDown();
                    return true;
                },
                "latch_count", command -> named(command).getCount(),
                "latch_wait", command -> await(named(command), command.number("wait")),
                "latch_delete", command -> named(command).delete());
    }

    private static boolean await(RCountDownLatch latch, long wait) throws InterruptedException {
        if (wait < 0) {
            latch.await();
            return true;
        }
        return latch.await(wait, TimeUnit.MILLISECONDS);
    }

    private RCountDownLatch named(Command command) {
        Clients.Client client = clients.of(command);
        return client.redisson().getCountDownLatch(client.mapped(command.text("name")));
    }
}
