package distlock.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** The loops with a thread per caller: lock() and unlock(). */
final class Threads implements Loops {
    private final RedissonClient redisson;
    private final AtomicInteger holder = new AtomicInteger(-1);
    private volatile boolean over;

    Threads(RedissonClient redisson) {
        this.redisson = redisson;
    }

    @Override
    public Tally.Sum cycle(Work work, double seconds) throws Exception {
        over = false;
        Tally[] tallies = new Tally[work.callers()];
        CountDownLatch start = new CountDownLatch(1);
        Crew crew = new Crew();
        for (int number = 0; number < work.callers(); number++) {
            int caller = number;
            Tally tally = tallies[caller] = new Tally();
            crew.add(() -> {
                start.await();
                for (long cycle = 0; !over; cycle++) {
                    String name = work.nameOf(caller, cycle);
                    long began = System.nanoTime();
                    RLock lock = redisson.getLock(name);
                    lock.lock();
                    boolean passed = work.names() == 1 && holder.getAndSet(caller) != caller;
                    lock.unlock();
                    long took = System.nanoTime() - began;
                    tally.note(took, passed, over);
                }
            });
        }
        // Threads are expensive to start, and the start is not measured.
        long began = System.nanoTime();
        start.countDown();
        Thread.sleep((long) (seconds * 1000));
        over = true;
        double took = (System.nanoTime() - began) / 1e9;
        crew.join();
        return Tally.sum(tallies, took);
    }

    @Override
    public void hold(Work work) throws Exception {
        Crew crew = new Crew();
        for (int number = 0; number < work.callers(); number++) {
            int caller = number;
            crew.add(() -> {
                for (int name = caller; name < work.names(); name += work.callers()) {
                    redisson.getLock(Work.name(name)).lock();
                }
            });
        }
        crew.join();
    }

    @Override
    public Tally.Sum queue(Work work) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void lock(String name) {
        redisson.getLock(name).lock();
    }

    @Override
    public void unlock(String name) {
        redisson.getLock(name).unlock();
    }

    /** Threads, and the first failure in one of them. */
    private static final class Crew {
        private final List<Thread> threads = new ArrayList<>();
        private final AtomicReference<Exception> failure = new AtomicReference<>();

        interface Job {
            void run() throws Exception;
        }

        void add(Job job) {
            Thread thread = new Thread(() -> {
                try {
                    job.run();
                } catch (Exception error) {
                    failure.compareAndSet(null, error);
                }
            });
            threads.add(thread);
            thread.start();
        }

        void join() throws Exception {
            for (Thread thread : threads) {
                thread.join();
            }
            if (failure.get() != null) {
                throw failure.get();
            }
        }
    }
}
