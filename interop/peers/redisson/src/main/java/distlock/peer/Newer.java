package distlock.peer;

import java.lang.reflect.InvocationTargetException;

/** Calls methods that not every version has: one source tree is compiled against all of them. */
final class Newer {
    private Newer() {}

    static Object call(Class<?> type, Object on, String method, Class<?>[] types, Object... words) throws Exception {
        try {
            return type.getMethod(method, types).invoke(on, words);
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Exception cause) {
                throw cause;
            }
            throw thrown;
        }
    }
}
