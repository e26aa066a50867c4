/*
 * A Java service on Apache Curator, for tests: one request a line in, answers out.
 *
 *	java -cp /usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-nop.jar \
 *		CuratorPeer.java HOSTS SESSION_TIMEOUT_MS [USER:PASSWORD]
 *
 * With a user, clients authenticate, and what they make is only for that user.
 *
 * The protocol is that of InteropPeer.pm, which drives this program.  An actor is a
 * thread, because Curator's locks belong to threads: what one actor is asked to do, it
 * does in that order, and re-entry and downgrade work as in a thread of a service.
 *
 * kinds of locks:
 *
 *	mutex			InterProcessMutex
 *	semmutex		InterProcessSemaphoreMutex
 *	read, write		InterProcessReadWriteLock; both of one actor and path are one lock
 *	semaphore=N		InterProcessSemaphoreV2 of N leases
 *	semaphore=limit	InterProcessSemaphoreV2 with the SharedCount in PATH/limit
 *	selector		LeaderSelector: acquired when it leads
 *	latch			LeaderLatch: the same
 *	rw=N			for "hammer": read in N of 100 rounds, else write
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.ACLProvider;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.BoundedExponentialBackoffRetry;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;

public class CuratorPeer
{
	static final int PATIENCE_MS = 60_000;	// for a ZooKeeper that is away

	// Several leases are taken one by one, so that two can wait for each other.  How long each
	// attempt waits at first, and at last: a queue may be longer than the first attempt.
	static final int SHORT_MS = 200;
	static final int LONG_MS = 3200;

	static String hosts;
	static int sessionTimeout;
	static String identity;
	static final Map<String, CuratorFramework> clients = new HashMap<>();
	static final Map<String, Actor> actors = new HashMap<>();

	public static void main(String[] args) throws Exception
	{
		hosts = args[0];
		sessionTimeout = Integer.parseInt(args[1]);
		identity = args.length > 2 ? args[2] : null;

		var requests = new BufferedReader(new InputStreamReader(System.in));
		for (String line; (line = requests.readLine()) != null; )
		{
			String[] words = line.trim().split("\\s+");
			if (words.length < 3)
				say("? error BadRequest: " + line);
			else
				dispatch(new Request(words[0], words[1], words[2],
						Arrays.copyOfRange(words, 3, words.length)));
		}

		// The test is gone, so the sessions end, as if the service had died.
		Runtime.getRuntime().halt(0);
	}

	static synchronized void say(String line)
	{
		System.out.println(line);
		System.out.flush();
	}

	// Operations that do not wait for a busy actor are done here, the rest by its thread.
	static void dispatch(Request request)
	{
		try
		{
			switch (request.op)
			{
				case "session" ->
					request.answer("0x" + Long.toHexString(
							client(request.clientName()).getZookeeperClient().getZooKeeper().getSessionId()));
				case "clock" -> request.answer(Long.toString(System.nanoTime()));
				case "cancel" ->
				{
					actor(request).thread.interrupt();
					request.answer("t");
				}
				case "close" ->
				{
					CuratorFramework gone = clients.remove(request.clientName());
					if (gone != null)
						gone.close();
					actors.keySet().removeIf(name -> clientOf(name).equals(request.clientName()));
					request.answer("t");
				}
				default -> actor(request).queue.add(request);
			}
		}
		catch (Exception e)
		{
			request.fail(e);
		}
	}

	static Actor actor(Request request) throws Exception
	{
		Actor actor = actors.get(request.actor);
		if (actor == null)
			actors.put(request.actor, actor = new Actor(request.actor, client(request.clientName())));
		return actor;
	}

	static CuratorFramework client(String name) throws Exception
	{
		CuratorFramework client = clients.get(name);
		if (client == null)
		{
			var builder = CuratorFrameworkFactory.builder().connectString(hosts)
					.sessionTimeoutMs(sessionTimeout).connectionTimeoutMs(PATIENCE_MS)
					.retryPolicy(new BoundedExponentialBackoffRetry(50, 500, PATIENCE_MS / 500));
			if (identity != null)
				builder.authorization("digest", identity.getBytes()).aclProvider(new CreatorOnly());
			client = builder.build();
			client.start();
			if (!client.blockUntilConnected(PATIENCE_MS, TimeUnit.MILLISECONDS))
				throw new IllegalStateException("no ZooKeeper");
			clients.put(name, client);
		}
		return client;
	}

	static class CreatorOnly implements ACLProvider
	{
		public List<ACL> getDefaultAcl() { return ZooDefs.Ids.CREATOR_ALL_ACL; }
		public List<ACL> getAclForPath(String path) { return ZooDefs.Ids.CREATOR_ALL_ACL; }
	}

	static String clientOf(String actor)
	{
		return actor.split("\\.")[0];
	}

	record Request(String id, String actor, String op, String[] args)
	{
		String clientName()
		{
			return clientOf(actor);
		}

		String arg(int i)
		{
			if (i >= args.length)
				throw new IllegalArgumentException(op + " wants more arguments");
			return args[i];
		}

		String arg(int i, String otherwise)
		{
			return i < args.length ? args[i] : otherwise;
		}

		// No test waits for the answer to an actor's request to itself.
		void answer(String value)
		{
			if (!id.equals("*"))
				say(id + " ok " + value);
		}

		void fail(Throwable e)
		{
			say(id + " " + (id.equals("*") ? actor + " failed " : "error ") + e.getClass().getSimpleName() + ": "
					+ String.valueOf(e.getMessage()).replaceAll("\\s+", " "));
		}
	}

	// A thread of a service, with the locks it has ever used.
	static class Actor implements Runnable
	{
		final String name;
		final CuratorFramework client;
		final BlockingQueue<Request> queue = new LinkedBlockingQueue<>();
		final Thread thread;

		final Map<String, InterProcessLock> locks = new HashMap<>();
		final Map<String, InterProcessReadWriteLock> rwLocks = new HashMap<>();
		final Map<String, InterProcessSemaphoreV2> semaphores = new HashMap<>();
		final Map<String, Deque<Lease>> leases = new HashMap<>();
		final Map<String, SharedCount> counts = new HashMap<>();

		Actor(String name, CuratorFramework client)
		{
			this.name = name;
			this.client = client;
			thread = new Thread(this, name);
			thread.setDaemon(true);
			thread.start();
		}

		@Override
		public void run()
		{
			while (true)
			{
				Request request;
				try
				{
					request = queue.take();
				}
				catch (InterruptedException e)
				{
					continue;		// cancelled while there was nothing to cancel
				}
				try
				{
					request.answer(perform(request));
				}
				catch (Throwable e)
				{
					request.fail(e);
				}
			}
		}

		String perform(Request r) throws Exception
		{
			return switch (r.op)
			{
				case "acquire" -> bool(acquire(r.arg(0), r.arg(1), r.arg(2, "-"),
						Integer.parseInt(r.arg(3, "1"))));
				case "release" ->
				{
					release(r.arg(0), r.arg(1), Integer.parseInt(r.arg(2, "1")));
					yield "t";
				}
				case "held" -> bool(isHeld(r.arg(0), r.arg(1)));
				case "count" -> Integer.toString(count(r.arg(0)).getCount());
				case "set-count" ->
				{
					count(r.arg(0)).setCount(Integer.parseInt(r.arg(1)));
					yield "t";
				}
				case "nodes" -> String.join(" ", nodes(r.arg(0), r.arg(1)));
				case "revocable" ->
				{
					makeRevocable(r.arg(0), r.arg(1).equals("release"));
					yield "t";
				}
				case "revoke" ->
				{
					Revoker.attemptRevoke(client, r.arg(0));
					yield "t";
				}
				case "hammer" -> hammer(r.arg(0), r.arg(1), Path.of(r.arg(2)),
						Integer.parseInt(r.arg(3)), Long.parseLong(r.arg(4, "0")),
						Integer.parseInt(r.arg(5, "1")));
				// sent by ourselves, see makeRevocable
				case "yield-up" ->
				{
					mutex(r.arg(0)).release();
					say("* " + name + " released " + r.arg(0));
					yield "t";
				}
				default -> throw new IllegalArgumentException("no such operation: " + r.op);
			};
		}

		static String bool(boolean value)
		{
			return value ? "t" : "f";
		}

		// --- locks ---

		InterProcessLock lock(String kind, String path)
		{
			return switch (kind)
			{
				case "mutex" -> mutex(path);
				case "semmutex" -> locks.computeIfAbsent("semmutex " + path,
						key -> new InterProcessSemaphoreMutex(client, path));
				case "selector" -> locks.computeIfAbsent("selector " + path,
						key -> new Selector(client, path));
				case "latch" -> locks.computeIfAbsent("latch " + path, key -> new Latch(client, path));
				case "read" -> rwLock(path).readLock();
				case "write" -> rwLock(path).writeLock();
				default -> throw new IllegalArgumentException("no such kind of lock: " + kind);
			};
		}

		InterProcessMutex mutex(String path)
		{
			return (InterProcessMutex) locks.computeIfAbsent("mutex " + path,
					key -> new InterProcessMutex(client, path));
		}

		InterProcessReadWriteLock rwLock(String path)
		{
			return rwLocks.computeIfAbsent(path, key -> new InterProcessReadWriteLock(client, path));
		}

		InterProcessSemaphoreV2 semaphore(String kind, String path)
		{
			String max = kind.substring("semaphore=".length());
			return semaphores.computeIfAbsent(kind + " " + path,
					key -> max.equals("limit") ? new InterProcessSemaphoreV2(client, path, count(path))
							: new InterProcessSemaphoreV2(client, path, Integer.parseInt(max)));
		}

		// The limit of a semaphore, as Curator keeps it.
		SharedCount count(String path)
		{
			return counts.computeIfAbsent(path, key -> {
				try
				{
					var count = new SharedCount(client, path + "/limit", 0);
					count.start();
					return count;
				}
				catch (Exception e)
				{
					throw new IllegalStateException(e);
				}
			});
		}

		Deque<Lease> leases(String path)
		{
			return leases.computeIfAbsent(path, key -> new ArrayDeque<>());
		}

		static boolean isSemaphore(String kind)
		{
			return kind.startsWith("semaphore=");
		}

		boolean acquire(String kind, String path, String ms, int quantity) throws Exception
		{
			boolean isEndless = ms.equals("-");
			long time = isEndless ? 0 : Long.parseLong(ms);

			if (isSemaphore(kind))
			{
				InterProcessSemaphoreV2 semaphore = semaphore(kind, path);
				Collection<Lease> got = isEndless ? semaphore.acquire(quantity)
						: semaphore.acquire(quantity, time, TimeUnit.MILLISECONDS);
				if (got != null)
					leases(path).addAll(got);
				return got != null;
			}
			if (!isEndless)
				return lock(kind, path).acquire(time, TimeUnit.MILLISECONDS);
			lock(kind, path).acquire();
			return true;
		}

		void release(String kind, String path, int quantity) throws Exception
		{
			if (!isSemaphore(kind))
			{
				lock(kind, path).release();
				return;
			}
			if (leases(path).size() < quantity)
				throw new IllegalMonitorStateException("only " + leases(path).size() + " leases");
			for (int i = 0; i < quantity; i++)
				semaphore(kind, path).returnLease(leases(path).removeLast());
		}

		boolean isHeld(String kind, String path)
		{
			if (isSemaphore(kind))
				return !leases(path).isEmpty();
			InterProcessLock lock = lock(kind, path);
			return lock instanceof InterProcessMutex mutex
					? mutex.isOwnedByCurrentThread() : lock.isAcquiredInThisProcess();
		}

		Collection<String> nodes(String kind, String path) throws Exception
		{
			if (isSemaphore(kind))
				return semaphore(kind, path).getParticipantNodes();
			if (lock(kind, path) instanceof InterProcessMutex mutex)
				return mutex.getParticipantNodes();
			throw new IllegalArgumentException(kind + " cannot tell its nodes");
		}

		// The listener is called by a thread of Curator's, but only the holder may release.
		void makeRevocable(String path, boolean doesRelease)
		{
			mutex(path).makeRevocable(lock -> {
				say("* " + name + " revoked " + path);
				if (doesRelease)
					queue.add(new Request("*", name, "yield-up", new String[] { path }));
			});
		}

		// --- load ---

		// Until so many rounds are done or "stop" is in the directory; 0 is endless.
		String hammer(String kind, String path, Path directory, int rounds, long holdMicros,
				int quantity) throws Exception
		{
			int done = 0;

			try (var counter = FileChannel.open(directory.resolve("counter"),
						StandardOpenOption.READ, StandardOpenOption.WRITE);
					var history = FileChannel.open(directory.resolve("history"),
						StandardOpenOption.WRITE, StandardOpenOption.APPEND))
			{
				while ((rounds == 0 || done < rounds) && !Files.exists(directory.resolve("stop")))
				{
					String now = kindOfRound(kind);
					int patience = SHORT_MS;
					while (!acquire(now, path, quantity > 1 ? Integer.toString(patience) : "-", quantity))
						patience = Math.min(2 * patience, LONG_MS);
					section(now.equals("read") ? "s" : isSemaphore(now) ? Integer.toString(quantity) : "x",
							counter, history, holdMicros);
					release(now, path, quantity);
					done++;
				}
			}
			return Integer.toString(done);
		}

		static String kindOfRound(String kind)
		{
			if (!kind.startsWith("rw="))
				return kind;
			int reads = Integer.parseInt(kind.substring("rw=".length()));
			return ThreadLocalRandom.current().nextInt(100) < reads ? "read" : "write";
		}

		// The critical section.  See History.pm, which has the same and checks it.
		void section(String mode, FileChannel counter, FileChannel history, long holdMicros)
				throws Exception
		{
			long begin = System.nanoTime();
			ByteBuffer digits = ByteBuffer.allocate(12);
			counter.read(digits, 0);
			long value = Long.parseLong(new String(digits.array(), 0, digits.position()));
			if (holdMicros > 0)
				LockSupport.parkNanos(holdMicros * 1000);
			if (mode.equals("x"))
				counter.write(ByteBuffer.wrap(String.format("%012d", value + 1).getBytes()), 0);
			long end = System.nanoTime();
			history.write(ByteBuffer.wrap(
					(begin + " " + end + " " + mode + " " + value + " " + name + "\n").getBytes()));
		}
	}

	// Leadership as a lock: acquired when this one leads, and released for good.
	static class Selector extends LeaderSelectorListenerAdapter implements InterProcessLock
	{
		final LeaderSelector selector;
		final Semaphore led = new Semaphore(0);
		final Semaphore done = new Semaphore(0);

		Selector(CuratorFramework client, String path)
		{
			selector = new LeaderSelector(client, path, this);
		}

		@Override
		public void takeLeadership(CuratorFramework client) throws Exception
		{
			led.release();
			done.acquire();
		}

		@Override
		public void acquire() throws Exception
		{
			selector.start();
			led.acquire();
		}

		@Override
		public boolean acquire(long time, TimeUnit unit) throws Exception
		{
			selector.start();
			boolean acquired = led.tryAcquire(time, unit);
			if (!acquired)
				selector.close();
			return acquired;
		}

		@Override
		public void release()
		{
			done.release();
			selector.close();
		}

		@Override
		public boolean isAcquiredInThisProcess()
		{
			return selector.hasLeadership();
		}
	}

	static class Latch implements InterProcessLock
	{
		final LeaderLatch latch;

		Latch(CuratorFramework client, String path)
		{
			latch = new LeaderLatch(client, path);
		}

		@Override
		public void acquire() throws Exception
		{
			latch.start();
			latch.await();
		}

		@Override
		public boolean acquire(long time, TimeUnit unit) throws Exception
		{
			latch.start();
			boolean acquired = latch.await(time, unit);
			if (!acquired)
				latch.close();
			return acquired;
		}

		@Override
		public void release() throws Exception
		{
			latch.close();
		}

		@Override
		public boolean isAcquiredInThisProcess()
		{
			return latch.hasLeadership();
		}
	}
}
