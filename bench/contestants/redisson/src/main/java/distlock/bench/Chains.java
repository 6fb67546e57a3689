package distlock.bench;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** The loops with a chain of futures per caller: lockAsync() and unlockAsync(), its number in place of a thread's. */
final class Chains implements Loops {
    private final RedissonClient redisson;
    private final AtomicInteger holder = new AtomicInteger(-1);
    private volatile boolean over;

    Chains(RedissonClient redisson) {
        this.redisson = redisson;
    }

    @Override
    public Tally.Sum cycle(Work work, double seconds) throws Exception {
        over = false;
        Tally[] tallies = new Tally[work.callers()];
        CompletableFuture<?>[] callers = new CompletableFuture<?>[work.callers()];
        long began = System.nanoTime();
        for (int caller = 0; caller < work.callers(); caller++) {
            Caller chain = new Caller(work, caller);
            tallies[caller] = chain.tally;
            callers[caller] = chain.done;
            chain.next();
        }
        Thread.sleep((long) (seconds * 1000));
        over = true;
        double took = (System.nanoTime() - began) / 1e9;
        CompletableFuture.allOf(callers).get();
        return Tally.sum(tallies, took);
    }

    /** One caller. Written by one future at a time, each of which happens after the one before. */
    private final class Caller {
        private final Work work;
        private final int number;
        private final Tally tally = new Tally();
        private final CompletableFuture<Void> done = new CompletableFuture<>();
        private long cycle;
        private boolean passed;

        Caller(Work work, int number) {
            this.work = work;
            this.number = number;
        }

        void next() {
            if (over) {
                done.complete(null);
                return;
            }
            long began = System.nanoTime();
            RLock lock = redisson.getLock(work.nameOf(number, cycle++));
            CompletionStage<Void> held = lock.lockAsync(number + 1L);
            CompletionStage<Void> free = held.thenCompose(nothing -> {
                passed = work.names() == 1 && holder.getAndSet(number) != number;
                return lock.unlockAsync(number + 1L);
            });
            free.whenComplete((nothing, error) -> {
                if (error != null) {
                    done.completeExceptionally(error);
                    return;
                }
                tally.note(System.nanoTime() - began, passed, over);
                next();
            });
        }
    }

    @Override
    public void hold(Work work) throws Exception {
        CompletableFuture<?>[] callers = new CompletableFuture<?>[work.callers()];
        for (int caller = 0; caller < work.callers(); caller++) {
            callers[caller] = new CompletableFuture<Void>();
            holdFrom(caller, work, callers[caller]);
        }
        CompletableFuture.allOf(callers).get();
    }

    private void holdFrom(int name, Work work, CompletableFuture<?> done) {
        if (name >= work.names()) {
            done.complete(null);
            return;
        }
        redisson.getLock(Work.name(name)).lockAsync(1).whenComplete((nothing, error) -> {
            if (error != null) {
                done.completeExceptionally(error);
            } else {
                holdFrom(name + work.callers(), work, done);
            }
        });
    }

    @Override
    public Tally.Sum queue(Work work) throws Exception {
        AtomicLong first = new AtomicLong();
        CompletableFuture<?>[] callers = new CompletableFuture<?>[work.callers()];
        for (int caller = 0; caller < work.callers(); caller++) {
            long owner = caller + 1L;
            RLock lock = redisson.getLock(Work.name(0));
            CompletionStage<Void> had = lock.lockAsync(owner).thenCompose(nothing -> {
                first.compareAndSet(0, System.nanoTime());
                return lock.unlockAsync(owner);
            });
            callers[caller] = had.toCompletableFuture();
        }
        CompletableFuture.allOf(callers).get();
        double took = (System.nanoTime() - first.get()) / 1e9;
        return new Tally.Sum(work.callers(), work.callers(), took, Map.of(), 0, 1, 1);
    }

    @Override
    public void lock(String name) throws Exception {
        redisson.getLock(name).lockAsync(1).get();
    }

    @Override
    public void unlock(String name) throws Exception {
        redisson.getLock(name).unlockAsync(1).get();
    }
}
