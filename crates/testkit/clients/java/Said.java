import java.io.IOException;
import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.function.Function;

/** What the programs of this folder print, a line for each thing done: same lines from two servers, same servers. */
final class Said {
    /** Whether what only a server itself can answer is left out. */
    static final boolean BY_A_SERVER = !"no".equals(System.getenv("MONITOR"));

    private Said() {}

    /** Runs each call of calls.txt, whose words come as bytes. */
    static void calls(String path, Function<List<byte[]>, Object> call) throws IOException {
        for (String written : Files.readAllLines(Path.of(path))) {
            String line = written.trim();
            if (line.isEmpty() || line.startsWith("#")) {
                continue;
            }
            char mark = "~?".indexOf(line.charAt(0)) >= 0 ? line.charAt(0) : ' ';
            line(written.trim(), mark, () -> call.apply(words(mark == ' ' ? line : line.substring(1))));
        }
    }

    /** Prints what was returned, or the error. */
    static void of(String name, Callable<?> action) {
        line(name, ' ', action);
    }

    /** Prints the type of what was returned. */
    static void roughly(String name, Callable<?> action) {
        line(name, '~', action);
    }

    /** The same where the order is free. */
    static void unordered(String name, Callable<?> action) {
        line(name, '?', action);
    }

    private static void line(String name, char mark, Callable<?> action) {
        String said;
        try {
            Object value = action.call();
            if (mark == '~') {
                said = value == null ? "null" : type(value);
            } else if (mark == '?' && value instanceof Collection<?> several) {
                said = sorted(several).toString();
            } else {
                said = text(value);
            }
        } catch (Exception error) {
            said = text(error);
        }
        System.out.println(name + " -> " + said);
    }

    private static String type(Object value) {
        // In a Lettuce reply the kind stands first.
        boolean kind = value instanceof List<?> list && !list.isEmpty() && "map".equals(list.get(0));
        return kind || value instanceof Map ? "map" : value instanceof Collection ? "list" : value.getClass().getSimpleName();
    }

    private static List<String> sorted(Collection<?> values) {
        List<String> texts = new ArrayList<>();
        values.forEach(value -> texts.add(text(value)));
        Collections.sort(texts);
        return texts;
    }

    /** A text of any value of a client library's. */
    static String text(Object value) {
        if (value == null) {
            return "null";
        }
        if (value instanceof byte[] bytes) {
            return quoted(new String(bytes, StandardCharsets.ISO_8859_1));
        }
        if (value instanceof String string) {
            return quoted(string);
        }
        if (value instanceof Map.Entry<?, ?> entry) {
            return text(entry.getKey()) + ": " + text(entry.getValue());
        }
        if (value instanceof Map<?, ?> map) {
            return "map " + sorted(map.entrySet());
        }
        if (value instanceof Set<?> set) {
            return "set " + sorted(set);
        }
        if (value instanceof Iterable<?> values) {
            List<String> texts = new ArrayList<>();
            values.forEach(element -> texts.add(text(element)));
            return texts.toString();
        }
        if (value instanceof Throwable error) {
            String cause = error.getCause() == null || error.getCause() == error ? "" : " of " + text(error.getCause());
            return error.getClass().getSimpleName() + " " + error.getMessage() + cause;
        }
        if (value.getClass().isArray()) {
            List<Object> elements = new ArrayList<>();
            for (int at = 0; at < Array.getLength(value); at++) {
                elements.add(Array.get(value, at));
            }
            return text(elements);
        }
        return value.getClass().getSimpleName() + " " + (hasOwnText(value) ? value : fields(value));
    }

    private static boolean hasOwnText(Object value) {
        try {
            return value.getClass().getMethod("toString").getDeclaringClass() != Object.class;
        } catch (NoSuchMethodException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static List<String> fields(Object value) {
        List<String> texts = new ArrayList<>();
        for (Field field : value.getClass().getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers())) {
                continue;
            }
            try {
                field.setAccessible(true);
                texts.add(field.getName() + " " + text(field.get(value)));
            } catch (IllegalAccessException hidden) {
                throw new IllegalStateException(hidden);
            }
        }
        return texts;
    }

    private static String quoted(String string) {
        StringBuilder said = new StringBuilder("\"");
        for (char c : string.toCharArray()) {
            if (c < ' ' || c > '~' || c == '"' || c == '\\') {
                said.append(String.format("\\u%04x", (int) c));
            } else {
                said.append(c);
            }
        }
        return said.append('"').toString();
    }

    private static List<byte[]> words(String line) {
        List<byte[]> words = new ArrayList<>();
        String[] parts = line.split("\"", -1);
        for (int at = 0; at < parts.length; at++) {
            if (at % 2 == 1) {
                words.add(unquoted(parts[at]));
                continue;
            }
            for (String word : parts[at].trim().split(" +")) {
                if (!word.isEmpty()) {
                    words.add(word.getBytes(StandardCharsets.UTF_8));
                }
            }
        }
        return words;
    }

    /** A quoted word without its escapes. */
    private static byte[] unquoted(String word) {
        String[] parts = word.replace("\\n", "\n").split("\\\\x", -1);
        StringBuilder bytes = new StringBuilder(parts[0]);
        for (int at = 1; at < parts.length; at++) {
            bytes.append((char) Integer.parseInt(parts[at].substring(0, 2), 16)).append(parts[at].substring(2));
        }
        return bytes.toString().getBytes(StandardCharsets.ISO_8859_1);
    }
}
