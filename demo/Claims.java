// One transaction under a claim without a session, through a pooler in transaction mode:
//
//	java -cp postgresql.jar Claims.java 'jdbc:postgresql://host/db?prepareThreshold=0' /jobs/import

import java.sql.*;
import java.util.*;
import org.postgresql.util.PGInterval;

public class Claims {
    static <T> T call(String url, String function, Class<T> type, Object... parameters) throws SQLException {
        try (Connection connection = DriverManager.getConnection(url)) {
            return call(connection, function, type, parameters);
        }
    }

    static <T> T call(Connection connection, String function, Class<T> type, Object... parameters) throws SQLException {
        String places = String.join(", ", Collections.nCopies(parameters.length, "?"));
        try (PreparedStatement statement = connection.prepareStatement("SELECT " + function + "(" + places + ")")) {
            for (int i = 0; i < parameters.length; i++)
                statement.setObject(i + 1, parameters[i]);
            ResultSet result = statement.executeQuery();
            result.next();
            return result.getObject(1, type);
        }
    }

    static void work(String url, String path) throws SQLException {
        String claim = call(url, "zk_claim_request", String.class, path, new PGInterval("1 min"));
        try {
            while (!call(url, "zk_claim_wait", Boolean.class, claim, new PGInterval("10 s"))) { }
            try (Connection connection = DriverManager.getConnection(url)) {
                connection.setAutoCommit(false);
                long token = call(connection, "zk_xact_claim_use", Long.class, claim);
                connection.createStatement().execute("INSERT INTO done VALUES ('JDBC')");
                connection.commit();
            }
        } finally {
            call(url, "zk_claim_release", Boolean.class, claim);
        }
    }

    public static void main(String[] args) throws SQLException {
        work(args[0], args[1]);
    }
}
