package distlock.peer;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RTransaction;
import org.redisson.api.TransactionOptions;

/**
 * Redisson's transactions, one for each thread: the objects they change are locked until they end. A bucket is locked by a plain
 * lock, a map that is deleted by the writer's side of a read/write lock.
 */
final class Transactions {
    private final Clients clients;
    private final ThreadLocal<RTransaction> mine = new ThreadLocal<>();

    Transactions(Clients clients) {
        this.clients = clients;
    }

    Map<String, Deed> deeds() {
        Map<String, Deed> deeds = new HashMap<>();
        deeds.put("transaction_set", command -> {
            begun(command).getBucket(command.text("name")).set(command.text("value"));
            return true;
        });
        deeds.put("transaction_delete_map", command -> begun(command).getMap(command.text("name")).delete());
        deeds.put("transaction_commit", command -> {
            begun(command).commit();
            mine.remove();
            return true;
        });
        deeds.put("transaction_rollback", command -> {
            begun(command).rollback();
            mine.remove();
            return true;
        });
        return deeds;
    }

    /** The transaction of this thread, which its first command begins. */
    private RTransaction begun(Command command) {
        RTransaction transaction = mine.get();
        if (transaction == null) {
            transaction = clients.of(command).redisson().createTransaction(
                    TransactionOptions.defaults().timeout(60, TimeUnit.SECONDS));
            mine.set(transaction);
        }
        return transaction;
    }
}
