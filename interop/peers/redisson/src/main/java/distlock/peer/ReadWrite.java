package distlock.peer;

import java.io.PrintWriter;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/** The read/write lock, Redisson's RReadWriteLock: its two sides, and a turn of the hammer. */
final class ReadWrite {
    private ReadWrite() {}

    static RLock side(RedissonClient redisson, String name, String kind) {
        RReadWriteLock lock = redisson.getReadWriteLock(name);
        return kind.equals("read") ? lock.readLock() : lock.writeLock();
    }

    /** One turn, if it comes, in one of the ways there are. Our own workers do the same. */
    static boolean turn(
            RedissonClient redisson,
            String name,
            String who,
            int number,
            String manner,
            Random random,
            PrintWriter log)
            throws Exception {
        Turn turn = new Turn(redisson, name, who, manner.equals("unlocked"), random.nextInt(16) == 0, log);
        if (turn.unlocked()) {
            if (number % 2 == 0) {
                turn.add();
            } else {
                turn.look();
            }
            return true;
        }
        RLock read = side(redisson, name, "read");
        RLock write = side(redisson, name, "write");
        switch (number % 8) {
            case 0 -> {
                write.lock();
                turn.add();
                write.unlock();
            }
            case 3 -> {
                read.lock();
                read.lock();
                turn.look();
                read.unlock();
                read.unlock();
            }
            case 4 -> {
                write.lock();
                turn.add();
                read.lock();
                write.unlock();
                turn.look();
                read.unlock();
            }
            case 5 -> {
                write.lock();
                write.lock();
                turn.add();
                write.unlock();
                write.unlock();
            }
            case 6 -> {
                read.lock(10_000, TimeUnit.MILLISECONDS);
                turn.look();
                read.unlock();
            }
            case 7 -> {
                if (!write.tryLock(2_000, -1, TimeUnit.MILLISECONDS)) {
                    return false;
                }
                turn.add();
                write.unlock();
            }
            default -> {
                read.lock();
                turn.look();
                read.unlock();
            }
        }
        return true;
    }

    /** What is done while the lock is held, and noted: writers count twice over, readers look whether both agree. */
    private record Turn(
            RedissonClient redisson, String name, String who, boolean unlocked, boolean slowly, PrintWriter log) {
        void add() throws InterruptedException {
            long from = System.nanoTime();
            String before = bucket("counter").get();
            pause();
            String counted = Long.toString(before == null ? 1 : Long.parseLong(before) + 1);
            bucket("counter").set(counted);
            bucket("mirror").set(counted);
            note("write", from);
        }

        void look() throws InterruptedException {
            long from = System.nanoTime();
            String counted = bucket("counter").get();
            pause();
            String mirrored = bucket("mirror").get();
            if (!unlocked && !String.valueOf(counted).equals(String.valueOf(mirrored))) {
                throw new IllegalStateException(
                        "somebody wrote " + name + " while " + who + " read it: " + counted + ", " + mirrored);
            }
            note("read", from);
        }

        private void pause() throws InterruptedException {
            if (slowly) {
                TimeUnit.MILLISECONDS.sleep(1);
            }
        }

        private void note(String side, long from) {
            // One call writes one line; PrintWriter keeps lines of several threads apart.
            log.println(name + " " + who + "/" + side + " " + from + " " + System.nanoTime());
        }

        private RBucket<String> bucket(String what) {
            return redisson.getBucket(what + ":" + name, StringCodec.INSTANCE);
        }
    }
}
