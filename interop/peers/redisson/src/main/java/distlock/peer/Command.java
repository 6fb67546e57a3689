package distlock.peer;

import java.util.List;
import java.util.Map;

/** One line from the harness: the command, its thread and its arguments. */
record Command(Map<String, Object> fields) {
    static Command read(String line) {
        if (Json.read(line) instanceof Map<?, ?> fields) {
            @SuppressWarnings("unchecked") // The parser creates no other maps.
            Map<String, Object> named = (Map<String, Object>) fields;
            return new Command(named);
        }
        throw new IllegalArgumentException("a command is an object: " + line);
    }

    Object id() {
        return fields.get("id");
    }

    String verb() {
        return text("cmd");
    }

    String thread() {
        return text("thread", "main");
    }

    String client() {
        return text("client", "main");
    }

    boolean has(String field) {
        return fields.containsKey(field);
    }

    String text(String field) {
        return needed(field, text(field, null));
    }

    String text(String field, String otherwise) {
        Object value = fields.get(field);
        return value == null ? otherwise : (String) value;
    }

    long number(String field) {
        return needed(field, (Long) fields.get(field));
    }

    long number(String field, long otherwise) {
        return fields.get(field) == null ? otherwise : number(field);
    }

    List<String> texts(String field) {
        List<?> items = (List<?>) needed(field, fields.get(field));
        return items.stream().map(String.class::cast).toList();
    }

    private <T> T needed(String field, T value) {
        if (value == null) {
            throw new IllegalArgumentException("`" + field + "` is missing in " + Json.write(fields));
        }
        return value;
    }
}
