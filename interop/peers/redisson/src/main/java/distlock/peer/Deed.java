package distlock.peer;

/** The handler of a command; its value is the result in the reply. */
@FunctionalInterface
interface Deed {
    Object run(Command command) throws Exception;
}
