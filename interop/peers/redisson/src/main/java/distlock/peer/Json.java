package distlock.peer;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A parser for the part of JSON that a line with a command needs. Not every version of Redisson brings a library along.
 *
 * <p>Objects are maps, arrays lists, whole numbers longs, other numbers doubles.
 */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** Parses one value, with nothing after it. */
    static Object read(String text) {
        Json json = new Json(text);
        Object value = json.value();
        if (json.peek() != END) {
            throw json.wrong("the end");
        }
        return value;
    }

    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    private Object value() {
        char first = peek();
        return switch (first) {
            case '{' -> object();
            case '[' -> array();
            case '"' -> string();
            case 't' -> word("true", true);
            case 'f' -> word("false", false);
            case 'n' -> word("null", null);
            default -> number();
        };
    }

    private Map<String, Object> object() {
        Map<String, Object> fields = new LinkedHashMap<>();
        take('{');
        if (peek() != '}') {
            do {
                String name = string();
                take(':');
                fields.put(name, value());
            } while (more('}'));
        }
        take('}');
        return fields;
    }

    private List<Object> array() {
        List<Object> items = new ArrayList<>();
        take('[');
        if (peek() != ']') {
            do {
                items.add(value());
            } while (more(']'));
        }
        take(']');
        return items;
    }

    private boolean more(char end) {
        if (peek() == end) {
            return false;
        }
        take(',');
        return true;
    }

    private String string() {
        take('"');
        StringBuilder out = new StringBuilder();
        while (at < text.length()) {
            char c = text.charAt(at++);
            if (c == '"') {
                return out.toString();
            }
            out.append(c == '\\' ? escaped() : c);
        }
        throw wrong("the end of a string");
    }

    private char escaped() {
        char c = at < text.length() ? text.charAt(at++) : END;
        return switch (c) {
            case '"', '\\', '/' -> c;
            case 'b' -> '\b';
            case 'f' -> '\f';
            case 'n' -> '\n';
            case 'r' -> '\r';
            case 't' -> '\t';
            case 'u' -> {
                at += 4;
                yield (char) Integer.parseInt(text.substring(at - 4, at), 16);
            }
            default -> throw wrong("an escape");
        };
    }

    private Object number() {
        int from = at;
        while (at < text.length() && "+-.0123456789eE".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String digits = text.substring(from, at);
        if (digits.isEmpty()) {
            throw wrong("a value");
        }
        if (digits.matches("-?[0-9]+")) {
            return Long.valueOf(digits);
        }
        return Double.valueOf(digits);
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) {
            throw wrong(word);
        }
        at += word.length();
        return value;
    }

    private void take(char wanted) {
        if (peek() != wanted) {
            throw wrong("`" + wanted + "`");
        }
        at++;
    }

    /** The next character that is no white space. */
    private char peek() {
        while (at < text.length() && Character.isWhitespace(text.charAt(at))) {
            at++;
        }
        return at < text.length() ? text.charAt(at) : END;
    }

    private IllegalArgumentException wrong(String wanted) {
        return new IllegalArgumentException("not JSON: " + wanted + " is missing at " + at + " of " + text);
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Map<?, ?> fields) {
            out.append('{');
            String comma = "";
            for (Map.Entry<?, ?> field : fields.entrySet()) {
                out.append(comma);
                write(String.valueOf(field.getKey()), out);
                out.append(':');
                write(field.getValue(), out);
                comma = ",";
            }
            out.append('}');
        } else if (value instanceof Iterable<?> items) {
            out.append('[');
            String comma = "";
            for (Object item : items) {
                out.append(comma);
                write(item, out);
                comma = ",";
            }
            out.append(']');
        } else if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else {
            write(value.toString(), out);
        }
    }

    private static void write(String text, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }

    private static final char END = '\0';
}
