package distlock.peer;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * The real Redisson, driven by lines of JSON: a command per line on stdin, a reply per line on stdout.
 *
 * <pre>
 * {"id":1,"thread":"t1","cmd":"lock","name":"x","lease":-1}
 * {"id":1,"result":true,"from":73412,"to":73978}
 * {"id":2,"error":"java.lang.IllegalMonitorStateException","message":"…","from":…,"to":…}
 * </pre>
 *
 * Commands of one thread run one after the other on that very thread, since threads own Redisson's locks; those of
 * different threads run at the same time. `from` and `to` are the machine's monotonic clock in nanoseconds. The log
 * of Redisson goes to stderr. The process ends with its stdin, without cleaning up.
 */
final class Peer {
    private final PrintStream answers;
    private final Clients clients = new Clients();
    private final Map<String, Deed> deeds = new HashMap<>();
    private final Map<String, ExecutorService> threads = new HashMap<>();

    private Peer(PrintStream answers) {
        this.answers = answers;
        deeds.putAll(clients.deeds());
        deeds.putAll(new Locks(clients).deeds());
        deeds.putAll(new Hammer(clients).deeds());
        deeds.putAll(new Mix(clients).deeds());
        deeds.putAll(new Semaphores(clients).deeds());
        deeds.putAll(new Counting(clients).deeds());
        deeds.putAll(new Latches(clients).deeds());
        deeds.putAll(new Transactions(clients).deeds());
        deeds.put("clock", command -> System.nanoTime());
        deeds.put("exit", command -> {
            clients.closeAll();
            return true;
        });
    }

    public static void main(String[] args) throws IOException {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        // No other code may write between the replies.
        System.setOut(System.err);
        Peer peer = new Peer(answers);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            peer.take(line);
        }
        Runtime.getRuntime().halt(0);
    }

    private void take(String line) {
        Command command = Command.read(line);
        if (command.verb().equals("halt")) {
            // Dies as a killed process does: without a release, without a notification.
            Runtime.getRuntime().halt(137);
        }
        threads.computeIfAbsent(command.thread(), Peer::named).execute(() -> perform(command));
    }

    private void perform(Command command) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", command.id());
        long from = System.nanoTime();
        try {
            Deed deed = deeds.get(command.verb());
            if (deed == null) {
                throw new IllegalArgumentException("there is no command `" + command.verb() + "`");
            }
            answer.put("result", deed.run(command));
        } catch (Throwable error) {
            answer.put("error", error.getClass().getName());
            answer.put("message", String.valueOf(error.getMessage()));
        }
        answer.put("from", from);
        answer.put("to", System.nanoTime());
        answers.println(Json.write(answer));
        if (command.verb().equals("exit")) {
            System.exit(0);
        }
    }

    private static ExecutorService named(String name) {
        return Executors.newSingleThreadExecutor(task -> {
            Thread thread = new Thread(task, name);
            thread.setDaemon(true);
            return thread;
        });
    }
}
