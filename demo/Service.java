/*
 * Service lead|lock HOSTS PATH URL STATEMENT: a Java service that takes turns with PostgreSQL
 * servers, by Apache Curator.
 *
 *	lead	stands for the leadership PATH, and runs the statement again and again while it leads
 *	lock	acquires the mutex PATH, runs the statement, and releases the mutex
 *
 * PATH is that of the servers with zklock.root in front: /zklock/leaders/cron for the servers'
 * /leaders/cron.  Each statement runs in a transaction of the database at URL, which refuses it if
 * another client has presented a greater token of PATH.
 */
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Comparator;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionStateListener;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.data.Stat;

public class Service {
    final CuratorFramework client;
    final String path;
    final String url;
    final String statement;
    boolean stopped;

    Service(CuratorFramework client, String path, String url, String statement) {
        this.client = client;
        this.path = path;
        this.url = url;
        this.statement = statement;
    }

    /**
     * Lead by turns, for ever. When the ZooKeeper session is suspended or lost, the adapter makes
     * the selector interrupt takeLeadership(). The session may still live then, but nothing shows
     * that any more.
     */
    void lead() {
        LeaderSelector selector = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework client) throws Exception {
                long token = token();

                System.out.println("leads with token " + token);
                try {
                    while (true) {
                        work(token);
                        Thread.sleep(20);
                    }
                } catch (SQLException e) {
                    System.err.println(e.getMessage());
                } finally {
                    System.out.println("does not lead any more");
                }
            }
        });

        selector.autoRequeue();
        selector.start();
    }

    /**
     * Work once, under the mutex. A mutex tells nobody that its session is suspended or lost, so
     * this listens for that.
     */
    void lock() throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(client, path);
        Thread worker = Thread.currentThread();
        ConnectionStateListener listener = (source, state) -> {
            if (!state.isConnected())
                worker.interrupt();
        };

        mutex.acquire();
        client.getConnectionStateListenable().addListener(listener);
        try {
            // The token proves that the session was good after the listener was there.
            long token = token();

            System.out.println("has the lock with token " + token);
            work(token);
        } finally {
            client.getConnectionStateListenable().removeListener(listener);
            Thread.interrupted();       // or the release would be interrupted as well
            mutex.release();
        }
    }

    /**
     * The fencing token of the lock that this service holds: the czxid of its znode, times 65536.
     * zklock's tokens are made in the same way, so each holder's is greater than those before.
     */
    long token() throws Exception {
        long session = client.getZookeeperClient().getZooKeeper().getSessionId();
        String first = client.getChildren().forPath(path).stream()
            .filter(name -> name.contains("-lock-"))
            .min(Comparator.comparing(name -> name.substring(name.length() - 10)))
            .orElse("gone");
        Stat stat = client.checkExists().forPath(path + "/" + first);

        if (stat == null || stat.getEphemeralOwner() != session)
            throw new IllegalStateException("the lock " + path + " was lost");
        return stat.getCzxid() << 16;
    }

    /**
     * A thread may be interrupted too late: the JVM or its machine may have stood still. Only the
     * database can refuse what a service sends then.
     */
    synchronized void work(long token) throws SQLException {
        if (stopped)
            throw new IllegalStateException("the service is being stopped");
        try (Connection connection = DriverManager.getConnection(url)) {
            connection.setAutoCommit(false);
            try (PreparedStatement fence = connection.prepareStatement("SELECT zk_fence(?, ?)")) {
                fence.setString(1, path);
                fence.setLong(2, token);
                fence.execute();
            }
            try (Statement work = connection.createStatement()) {
                work.execute(statement);
            }
            connection.commit();
        }
    }

    /** The session ends after the work, and then the next in the queue has its turn at once. */
    synchronized void stop() {
        stopped = true;
        client.close();
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[1],
            new ExponentialBackoffRetry(100, 10));
        Service service = new Service(client, args[2], args[3], args[4]);

        client.start();
        client.blockUntilConnected();
        Runtime.getRuntime().addShutdownHook(new Thread(service::stop));
        if (args[0].equals("lock")) {
            service.lock();
        } else {
            service.lead();
            Thread.currentThread().join();
        }
    }
}
