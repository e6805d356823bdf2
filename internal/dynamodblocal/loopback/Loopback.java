import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.jar.JarFile;

/**
 * Runs DynamoDB Local on 127.0.0.1 only, on a free port, for as long as
 * standard input stays open.
 *
 * <p>DynamoDB Local's own main class listens on every interface, has no option
 * for that and refuses port 0. This class lets it build its server, and sets
 * the host and the port of the connector before the server starts. The port
 * comes from the operating system at the moment of binding, so there is no
 * window in which another process could take it. Everything is reached by
 * reflection, which keeps the class independent of the jar at compile time:
 * DynamoDB Local 1.x, 2.x and 3.x differ in their package names only.
 *
 * <p>The first argument is the path of DynamoDBLocal.jar, the rest goes to
 * DynamoDB Local. Once requests are taken, one line "Listening on
 * 127.0.0.1:port" is printed. The process ends when standard input ends, so it
 * cannot outlive the process that holds the other end of the pipe.
 */
public final class Loopback {
    private static final String HOST = "127.0.0.1";

    private Loopback() {
    }

    public static void main(String[] args) throws Exception {
        try {
            int port = start(args[0], Arrays.copyOfRange(args, 1, args.length));
            System.out.println("Listening on " + HOST + ":" + port);
            System.out.flush();
        } catch (InvocationTargetException e) {
            fail(e.getCause());
        } catch (Exception e) {
            fail(e);
        }
        awaitEndOfInput();
        // Not exit(): shutdown hooks have nothing to save, the data is in memory.
        Runtime.getRuntime().halt(0);
    }

    private static int start(String jar, String[] args) throws Exception {
        Class<?> runner = Class.forName(mainClass(jar));
        Object proxy = runner.getMethod("createServerFromCommandLineArgs", String[].class)
                .invoke(null, (Object) args);
        Object server = jetty(proxy);
        Object[] connectors = (Object[]) server.getClass().getMethod("getConnectors").invoke(server);
        if (connectors.length != 1) {
            throw new IllegalStateException("DynamoDB Local has " + connectors.length
                    + " connectors, one was expected; this version is not supported");
        }
        Object connector = connectors[0];
        connector.getClass().getMethod("setHost", String.class).invoke(connector, HOST);
        connector.getClass().getMethod("setPort", int.class).invoke(connector, 0);
        // Jetty's own start, not the proxy's: the latter also sends telemetry.
        server.getClass().getMethod("start").invoke(server);
        Method localPort = connector.getClass().getMethod("getLocalPort");
        return (Integer) localPort.invoke(connector);
    }

    /** The jar names its runner itself, whatever its package is called. */
    private static String mainClass(String jar) throws IOException {
        try (JarFile file = new JarFile(jar)) {
            String name = file.getManifest() == null ? null
                    : file.getManifest().getMainAttributes().getValue("Main-Class");
            if (name == null) {
                throw new IOException(jar + " names no Main-Class: is it DynamoDB Local?");
            }
            return name;
        }
    }

    private static Object jetty(Object proxy) throws IllegalAccessException {
        for (Field field : proxy.getClass().getDeclaredFields()) {
            if (field.getType().getName().equals("org.eclipse.jetty.server.Server")) {
                field.setAccessible(true);
                return field.get(proxy);
            }
        }
        throw new IllegalStateException("no Jetty server in " + proxy.getClass().getName()
                + "; this version of DynamoDB Local is not supported");
    }

    private static void awaitEndOfInput() throws IOException {
        byte[] discarded = new byte[256];
        while (System.in.read(discarded) >= 0) {
            // Nothing is read from the parent but the end.
        }
    }

    private static void fail(Throwable cause) {
        cause.printStackTrace();
        System.err.flush();
        Runtime.getRuntime().halt(1);
    }
}
