import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command-line tools, unmodified, many commands in one virtual machine: to start one
 * for each command would take most of the time.
 *
 * A line of standard input is a command: the tool's class, what the tool finds on its own
 * standard input, and its arguments, each URL-encoded, with tabs between. The answer is a
 * line with the exit code and the lengths of output and errors, and then these bytes.
 */
public class Tools {
    /** Thrown where a tool would end its process. */
    private static final class Ended extends RuntimeException {
        final int code;

        Ended(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            List<String> words = new ArrayList<>();
            for (String word : line.split("\t", -1)) {
                words.add(URLDecoder.decode(word, StandardCharsets.UTF_8));
            }
            ByteArrayOutputStream output = new ByteArrayOutputStream();
            ByteArrayOutputStream errors = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(words.get(1).getBytes(StandardCharsets.UTF_8)));
            System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
            int code = run(words.get(0), words.subList(2, words.size()).toArray(new String[0]));
            answers.println(code + " " + output.size() + " " + errors.size());
            output.writeTo(answers);
            errors.writeTo(answers);
            answers.flush();
        }
    }

    private static int run(String tool, String[] arguments) throws Exception {
        List<Integer> codes = new ArrayList<>();
        List<Runnable> hooks = new ArrayList<>();
        Exit.Procedure end = (code, message) -> {
            codes.add(code);
            throw new Ended(code);
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException raised) {
            if (!(raised.getCause() instanceof Ended)) {
                raised.getCause().printStackTrace();
                codes.add(1);
            }
        }
        // What the process would do at its end: producers send what they still have.
        for (Runnable hook : hooks) {
            hook.run();
        }
        return codes.isEmpty() ? 0 : codes.get(0);
    }
}
