/*
 * Sets the counter from which the children of a znode get their sequence numbers, in the
 * data of a ZooKeeper server that is not running:
 *
 *	java -cp zookeeper.jar SetCversion.java DATADIR PATH COUNTER
 *
 * The counter only grows.
 */
import java.io.File;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

public class SetCversion {
    public static void main(String[] args) throws Exception {
        File directory = new File(args[0]);
        FileTxnSnapLog log = new FileTxnSnapLog(directory, directory);
        DataTree tree = new DataTree();
        ConcurrentHashMap<Long, Integer> sessions = new ConcurrentHashMap<>();

        log.restore(tree, sessions, (header, record, digest) -> {});
        tree.setCversionPzxid(args[1], Integer.parseInt(args[2]), tree.lastProcessedZxid);
        log.save(tree, sessions, true);
        log.close();
    }
}
