/*
 * Changes the tree in the data of a ZooKeeper server that is not running:
 *
 *	java -cp zookeeper.jar EditTree.java DATADIR EDIT...
 *
 * An EDIT is one of these:
 *
 *	PATH counter N		its children get their sequence numbers from N on, which only grows
 *	PATH version N		its data have this version
 *	PATH delete -		it is deleted, with all below
 */
import java.io.File;
import java.util.ArrayList;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

public class EditTree {
    public static void main(String[] args) throws Exception {
        File directory = new File(args[0]);
        FileTxnSnapLog log = new FileTxnSnapLog(directory, directory);
        DataTree tree = new DataTree();
        ConcurrentHashMap<Long, Integer> sessions = new ConcurrentHashMap<>();

        log.restore(tree, sessions, (header, record, digest) -> {});
        for (int i = 1; i < args.length; i += 3)
            edit(tree, args[i], args[i + 1], args[i + 2]);
        log.save(tree, sessions, true);
        log.close();
    }

    static void edit(DataTree tree, String path, String what, String value) throws Exception {
        long zxid = tree.lastProcessedZxid;

        switch (what) {
            case "counter":
                tree.setCversionPzxid(path, Integer.parseInt(value), zxid);
                break;
            case "version":
                tree.setData(path, tree.getData(path, new Stat(), null), Integer.parseInt(value), zxid, 0);
                break;
            case "delete":
                for (String child : new ArrayList<>(tree.getNode(path).getChildren()))
                    edit(tree, path + "/" + child, what, value);
                tree.deleteNode(path, zxid);
                break;
            default:
                throw new IllegalArgumentException(what);
        }
    }
}
