/*
 * A service on Apache Curator, for the benchmark: one session, and a thread a client.
 *
 *	java -cp .../curator-recipes.jar CuratorBench.java HOSTS
 *
 * Reads requests, a line each:
 *
 *	mutex CLIENTS SECONDS PATH PATHS COUNTER	InterProcessMutex, in a loop
 *	rw CLIENTS SECONDS PATH PERCENT COUNTER		InterProcessReadWriteLock; PERCENT read
 *	semaphore CLIENTS SECONDS PATH N COUNTER	InterProcessSemaphoreV2 of N leases
 *	try CLIENTS SECONDS PATH					acquire(0), which has to fail
 *	hold PATH, drop PATH						keep a mutex for a while
 *	handover SECONDS PATH						two sessions in turn: see README.md
 */
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.RandomAccessFile;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.BoundedExponentialBackoffRetry;

public class CuratorBench
{
	static final VarHandle LONG =
			MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.nativeOrder());

	static String hosts;
	static CuratorFramework client;
	static final Map<String, InterProcessMutex> mutexes = new ConcurrentHashMap<>();
	static final ExecutorService pool = Executors.newCachedThreadPool();
	static final AtomicLong unique = new AtomicLong(ProcessHandle.current().pid() << 32);

	public static void main(String[] args) throws Exception
	{
		hosts = args[0];
		client = connect();
		var requests = new BufferedReader(new InputStreamReader(System.in));
		for (String line; (line = requests.readLine()) != null; )
		{
			try
			{
				System.out.println("ok " + serve(line.split(" ")));
			}
			catch (Throwable e)
			{
				System.out.println("error " + e);
			}
			System.out.flush();
		}
		Runtime.getRuntime().halt(0);
	}

	static CuratorFramework connect() throws Exception
	{
		var client = CuratorFrameworkFactory.newClient(hosts, 10_000, 10_000,
				new BoundedExponentialBackoffRetry(50, 500, 20));
		client.start();
		if (!client.blockUntilConnected(30, TimeUnit.SECONDS))
			throw new IllegalStateException("no ZooKeeper");
		return client;
	}

	static String serve(String[] r) throws Exception
	{
		return switch (r[0])
		{
			case "mutex" -> mutex(clients(r), seconds(r), r[3], Integer.parseInt(r[4]), map(r[5]));
			case "rw" -> readWrite(clients(r), seconds(r), r[3], Integer.parseInt(r[4]), map(r[5]));
			case "semaphore" -> semaphore(clients(r), seconds(r), r[3], Integer.parseInt(r[4]), map(r[5]));
			case "try" -> tries(clients(r), seconds(r), r[3]);
			case "hold" -> { holder(r[1]).acquire(); yield "0"; }
			case "drop" -> { holder(r[1]).release(); yield "0"; }
			case "handover" -> handover(Double.parseDouble(r[1]), r[2]);
			default -> throw new IllegalArgumentException("no such request: " + r[0]);
		};
	}

	static int clients(String[] r) { return Integer.parseInt(r[1]); }
	static double seconds(String[] r) { return Double.parseDouble(r[2]); }

	// The holder of the lock reads it and writes it back plus one.
	static ByteBuffer map(String file) throws IOException
	{
		if (file.equals("-"))
			return null;
		try (var f = new RandomAccessFile(file, "rw"))
		{
			return f.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 8).order(ByteOrder.nativeOrder());
		}
	}

	static void count(ByteBuffer counter)
	{
		if (counter != null)
			LONG.setVolatile(counter, 0, (long) LONG.getVolatile(counter, 0) + 1);
	}

	interface Round
	{
		// returns what to count it as
		int once() throws Exception;
	}

	// So many threads do rounds until the time is over.
	static String inParallel(int clients, double seconds, Round round) throws Exception
	{
		long[] counts = new long[clients];
		long begin = System.nanoTime(), end = begin + (long) (seconds * 1e9);
		List<Future<?>> all = new ArrayList<>();

		for (int i = 0; i < clients; i++)
		{
			int me = i;
			all.add(pool.submit((Callable<Void>) () ->
			{
				long n = 0;
				while (System.nanoTime() < end)
					n += round.once();
				counts[me] = n;
				return null;
			}));
		}
		for (Future<?> one : all)
			one.get();

		var answer = new StringBuilder().append((System.nanoTime() - begin) / 1e9);
		for (long n : counts)
			answer.append(' ').append(n);
		return answer.toString();
	}

	// --- what is done in parallel ---

	static InterProcessMutex mutexOf(String path)
	{
		return mutexes.computeIfAbsent(path, p -> new InterProcessMutex(client, p));
	}

	static InterProcessMutex choose(String path, int paths)
	{
		return switch (paths)
		{
			case 0 -> new InterProcessMutex(client, path + "/" + unique.incrementAndGet());
			case 1 -> mutexOf(path);
			default -> mutexOf(path + "/" + ThreadLocalRandom.current().nextInt(paths));
		};
	}

	static String mutex(int clients, double seconds, String path, int paths, ByteBuffer counter)
			throws Exception
	{
		return inParallel(clients, seconds, () ->
		{
			InterProcessMutex mutex = choose(path, paths);
			mutex.acquire();
			count(counter);
			mutex.release();
			return 1;
		});
	}

	static String readWrite(int clients, double seconds, String path, int percent, ByteBuffer counter)
			throws Exception
	{
		var lock = new InterProcessReadWriteLock(client, path);
		var writes = new AtomicLong();
		long before = counter == null ? 0 : (long) LONG.getVolatile(counter, 0);
		String answer = inParallel(clients, seconds, () ->
		{
			if (ThreadLocalRandom.current().nextInt(100) < percent)
			{
				lock.readLock().acquire();
				lock.readLock().release();
			}
			else
			{
				lock.writeLock().acquire();
				count(counter);
				lock.writeLock().release();
				writes.incrementAndGet();
			}
			return 1;
		});
		if (counter != null && (long) LONG.getVolatile(counter, 0) - before != writes.get())
			throw new IllegalStateException("two wrote at a time");
		return answer;
	}

	static String semaphore(int clients, double seconds, String path, int n, ByteBuffer inside)
			throws Exception
	{
		var semaphore = new InterProcessSemaphoreV2(client, path, n);
		return inParallel(clients, seconds, () ->
		{
			Lease lease = semaphore.acquire();
			if (inside != null)
			{
				if ((long) LONG.getAndAdd(inside, 0, 1L) >= n)
					throw new IllegalStateException("too many have a lease");
				LONG.getAndAdd(inside, 0, -1L);
			}
			semaphore.returnLease(lease);
			return 1;
		});
	}

	static String tries(int clients, double seconds, String path) throws Exception
	{
		var mutex = new InterProcessMutex(client, path);
		return inParallel(clients, seconds, () ->
		{
			if (mutex.acquire(0, TimeUnit.SECONDS))
				throw new IllegalStateException("the lock was free");
			return 1;
		});
	}

	static InterProcessMutex held;

	static InterProcessMutex holder(String path)
	{
		if (held == null)
			held = new InterProcessMutex(client, path);
		return held;
	}

	// --- handover ---

	static volatile long grantedAt;

	// Two sessions in turn: the one holds, the other waits; then the one releases.
	static String handover(double seconds, String path) throws Exception
	{
		var answer = new StringBuilder("0");
		try (CuratorFramework other = connect())
		{
			InterProcessMutex[] mutex = { new InterProcessMutex(client, path), new InterProcessMutex(other, path) };
			ExecutorService[] thread = { Executors.newSingleThreadExecutor(), Executors.newSingleThreadExecutor() };
			long end = System.nanoTime() + (long) (seconds * 1e9);

			thread[0].submit(() -> { mutex[0].acquire(); return null; }).get();
			for (int holder = 0; System.nanoTime() < end; holder = 1 - holder)
			{
				int from = holder, to = 1 - holder;
				Future<?> waiting = thread[to].submit(() ->
				{
					mutex[to].acquire();
					grantedAt = System.nanoTime();
					return null;
				});
				while (mutex[from].getParticipantNodes().size() < 2)
					Thread.sleep(1);
				Thread.sleep(3);		// until it has set its watch
				long began = thread[from].submit(() ->
				{
					long now = System.nanoTime();
					mutex[from].release();
					return now;
				}).get();
				waiting.get();
				answer.append(' ').append((grantedAt - began) / 1000);
			}
			for (int i = 0; i < 2; i++)
			{
				int me = i;
				thread[me].submit(() -> { if (mutex[me].isOwnedByCurrentThread()) mutex[me].release(); return null; }).get();
				thread[me].shutdown();
			}
		}
		return answer.toString();
	}
}
