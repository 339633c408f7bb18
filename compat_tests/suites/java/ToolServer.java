// Runs Kafka's tools one after the other in one JVM, since a JVM takes seconds to start. Reads a call
// as lines (class, number of arguments, each argument, number of lines of input, each line), and
// answers "done STATUS LENGTH" and what the tool has said, in UTF-8.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

public class ToolServer {
    static class Exited extends RuntimeException {
    }

    // Scala keeps the streams that it finds first, so these stay and what is in them changes.
    static final ByteArrayOutputStream SAID = new ByteArrayOutputStream();
    static InputStream input = InputStream.nullInputStream();

    // The first status of a call is the tool's own: some catch what ends them, and end once more.
    static Integer exitStatus;
    static final List<Runnable> HOOKS = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream words = new PrintStream(SAID, true, StandardCharsets.UTF_8);
        System.setOut(words);
        System.setErr(words);
        System.setIn(new InputStream() {
            @Override
            public int read() throws IOException {
                return input.read();
            }
        });
        Exit.setExitProcedure((status, message) -> {
            if (message != null) {
                System.err.println(message);
            }
            exitStatus = exitStatus == null ? status : exitStatus;
            throw new Exited();
        });
        Exit.setHaltProcedure((status, message) -> {
            exitStatus = exitStatus == null ? status : exitStatus;
            throw new Exited();
        });
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        for (String name = in.readLine(); name != null; name = in.readLine()) {
            String[] call = lines(in);
            String[] lines = lines(in);
            String text = lines.length == 0 ? "" : String.join("\n", lines) + "\n";
            input = new ByteArrayInputStream(text.getBytes(StandardCharsets.UTF_8));
            SAID.reset();
            int status = run(name, call);
            words.flush();
            byte[] bytes = SAID.toByteArray();
            out.println("done " + status + " " + bytes.length);
            out.write(bytes);
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static int run(String name, String[] arguments) throws Exception {
        exitStatus = null;
        int status = 0;
        try {
            find(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Exited)) {
                thrown.getCause().printStackTrace();
                status = 1;
            }
        }
        // Some do in their hooks what they have still to do.
        HOOKS.forEach(Runnable::run);
        HOOKS.clear();
        return exitStatus == null ? status : exitStatus;
    }

    // Some tools were in other packages before Kafka 4.
    static Class<?> find(String name) throws ClassNotFoundException {
        String simple = name.substring(name.lastIndexOf('.') + 1);
        for (String candidate : List.of(name, "kafka.tools." + simple, "kafka.admin." + simple)) {
            try {
                return Class.forName(candidate);
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }

    static String[] lines(BufferedReader in) throws Exception {
        String[] lines = new String[Integer.parseInt(in.readLine())];
        for (int n = 0; n < lines.length; n++) {
            lines[n] = in.readLine();
        }
        return lines;
    }
}
