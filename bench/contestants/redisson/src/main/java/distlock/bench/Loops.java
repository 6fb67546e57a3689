package distlock.bench;

/** The loops a contestant is measured in. */
interface Loops {
    /** Lets callers lock and unlock until time is up. */
    Tally.Sum cycle(Work work, double seconds) throws Exception;

    /** Acquires every name, `callers` at a time, and keeps it. */
    void hold(Work work) throws Exception;

    /** Lets every caller hold one name once. */
    Tally.Sum queue(Work work) throws Exception;

    void lock(String name) throws Exception;

    void unlock(String name) throws Exception;
}
