/*
 * Retry URL PATH STATEMENT: run an SQL statement in a transaction under a lock.
 *
 * This is the loop that an application needs around such a transaction, with JDBC.
 * Copy runLocked() into yours.
 */
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;

public class Retry {
    interface Work {
        void run(Connection connection) throws SQLException;
    }

    /** The transaction did nothing, and may succeed if it is tried again. */
    static final Set<String> AT_ONCE = Set.of(
        "ZK001", // the lock was lost, or is in doubt
        "40P01", // deadlock detected
        "40001"); // serialization failure

    static final Set<String> LATER = Set.of(
        "08006", // ZooKeeper cannot be reached
        "57P03", // PostgreSQL is starting
        "08001"); // PostgreSQL cannot be reached

    // ZK002, the lease time is over, is in neither: the work would take too long again.

    /**
     * Do the work in a transaction that holds the lock. If the connection breaks while the
     * transaction commits, the outcome is unknown, and this throws the exception: only the
     * caller knows whether the work may be done twice.
     */
    static void runLocked(String url, String path, String timeout, Work work, int attempts)
            throws SQLException, InterruptedException {
        for (int attempt = 1;; attempt++) {
            boolean committing = false;

            // A loss may end the connection, so each attempt has its own.
            try (Connection connection = DriverManager.getConnection(url)) {
                connection.setAutoCommit(false);
                acquire(connection, path, timeout);
                work.run(connection);
                committing = true;
                connection.commit();
                return;
            } catch (SQLException e) {
                String state = e.getSQLState();

                // JDBC says 08006 of a broken connection, too.
                if (attempt == attempts || committing && LATER.contains(state)
                        || !AT_ONCE.contains(state) && !LATER.contains(state))
                    throw e;
                System.err.println("attempt " + attempt + " failed with " + state);
                if (LATER.contains(state))
                    Thread.sleep(ThreadLocalRandom.current().nextLong(
                        Math.min(1000L << attempt, 60_000)));
            }
        }
    }

    /** JDBC sends text as varchar, so the interval needs a cast. */
    static void acquire(Connection connection, String path, String timeout) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(
                "SELECT zk_xact_lock_acquire(?, ?::interval)")) {
            statement.setString(1, path);
            statement.setString(2, timeout);
            try (ResultSet result = statement.executeQuery()) {
                result.next();
                if (!result.getBoolean(1))
                    throw new SQLException("lock " + path + " was not granted", "55P03");
            }
        }
    }

    public static void main(String[] args) throws Exception {
        runLocked(args[0], args[1], "30 s", connection -> {
            try (Statement statement = connection.createStatement()) {
                statement.execute(args[2]);
            }
        }, 5);
    }
}
