package distlock.peer;

/** What a command does; what it returns goes back as the result. */
@FunctionalInterface
interface Deed {
    Object run(Command command) throws Exception;
}
