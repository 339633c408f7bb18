// The Java clients log in, with and without TLS, at the broker of which the environment tells.

import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.errors.SaslAuthenticationException;

class Logins {
    static Map<String, Object> configBy(String protocol, String mechanism, String wrong) {
        Map<String, Object> config = new HashMap<>(Map.of(
            "security.protocol", protocol,
            "ssl.truststore.type", "PEM", "ssl.truststore.location", System.getenv("LOGIN_CA")));
        if (!mechanism.isEmpty()) {
            String module = mechanism.equals("PLAIN") ? "plain.Plain" : "scram.Scram";
            config.put("sasl.mechanism", mechanism);
            config.put("sasl.jaas.config", String.format(
                "org.apache.kafka.common.security.%sLoginModule required username=\"%s\" password=\"%s\";",
                module, System.getenv("LOGIN_USER"), System.getenv("LOGIN_PASSWORD") + wrong));
        }
        return config;
    }

    static void check(String protocol, String mechanism) throws Exception {
        String plaintext = Matrix.servers;
        Matrix.servers = System.getenv("LOGIN_" + protocol);
        try {
            Matrix.login = configBy(protocol, mechanism, "");
            Matrix.sendAndRead(10);
            if (!mechanism.isEmpty()) {
                Matrix.login = configBy(protocol, mechanism, "?");
                try (Admin admin = Matrix.admin()) {
                    Matrix.expect(SaslAuthenticationException.class,
                        Matrix.errorOf(() -> admin.listTopics().names().get()).getClass());
                }
            }
        } finally {
            Matrix.servers = plaintext;
            Matrix.login = Map.of();
        }
    }
}
