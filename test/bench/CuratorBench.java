/*
 * A service on Apache Curator, for the benchmark: one session, and a thread for each client.
 *
 *	java -cp .../curator-recipes.jar CuratorBench.java HOSTS OTHER_HOSTS
 *
 * Reads requests, a line each.  FORM is "-" if each thread has lock objects of its own,
 * "shared" if all threads use the same ones:
 *
 *	mutex CLIENTS SECONDS PATH PATHS COUNTER FORM	InterProcessMutex, in a loop
 *	rw CLIENTS SECONDS PATH PERCENT COUNTER FORM	InterProcessReadWriteLock; PERCENT read
 *	semaphore CLIENTS SECONDS PATH N COUNTER FORM	InterProcessSemaphoreV2 of N leases
 *	try CLIENTS SECONDS PATH						acquire(0), which has to fail
 *	hold PATH, drop PATH							keep a mutex for a while
 *	handover SECONDS PATH							between this session and one to OTHER_HOSTS
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
import java.util.HashMap;
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

	static String otherHosts;
	static CuratorFramework client;
	static final ExecutorService pool = Executors.newCachedThreadPool();
	static final AtomicLong unique = new AtomicLong(ProcessHandle.current().pid() << 32);

	public static void main(String[] args) throws Exception
	{
		client = connect(args[0]);
		otherHosts = args[1];
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

	static CuratorFramework connect(String hosts) throws Exception
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
			case "mutex" -> mutex(clients(r), seconds(r), r[3], Integer.parseInt(r[4]), map(r[5]), isShared(r));
			case "rw" -> readWrite(clients(r), seconds(r), r[3], Integer.parseInt(r[4]), map(r[5]), isShared(r));
			case "semaphore" -> semaphore(clients(r), seconds(r), r[3], Integer.parseInt(r[4]), map(r[5]), isShared(r));
			case "try" -> tries(clients(r), seconds(r), r[3]);
			case "hold" -> { holder(r[1]).acquire(); yield "0"; }
			case "drop" -> { holder(r[1]).release(); yield "0"; }
			case "handover" -> handover(Double.parseDouble(r[1]), r[2]);
			default -> throw new IllegalArgumentException("no such request: " + r[0]);
		};
	}

	static int clients(String[] r) { return Integer.parseInt(r[1]); }
	static double seconds(String[] r) { return Double.parseDouble(r[2]); }
	static boolean isShared(String[] r) { return r[6].equals("shared"); }

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
		void once() throws Exception;
	}

	// A client first makes its own objects, and then does rounds.
	interface Client
	{
		Round begin() throws Exception;
	}

	// So many clients, a thread each, do rounds until the time is over.
	static String inParallel(int clients, double seconds, Client client) throws Exception
	{
		long[] counts = new long[clients];
		long begin = System.nanoTime(), end = begin + (long) (seconds * 1e9);
		List<Future<?>> all = new ArrayList<>();

		for (int i = 0; i < clients; i++)
		{
			int me = i;
			Round round = client.begin();
			all.add(pool.submit((Callable<Void>) () ->
			{
				long n = 0;
				for (; System.nanoTime() < end; n++)
					round.once();
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

	// A release wakes all threads that wait in the same object, and each of them lists the
	// queue.  So a thread has objects of its own, unless the form is "shared".

	static InterProcessMutex choose(Map<String, InterProcessMutex> mutexes, String path, int paths)
	{
		return switch (paths)
		{
			case 0 -> new InterProcessMutex(client, path + "/" + unique.incrementAndGet());
			case 1 -> kept(mutexes, path);
			default -> kept(mutexes, path + "/" + ThreadLocalRandom.current().nextInt(paths));
		};
	}

	static InterProcessMutex kept(Map<String, InterProcessMutex> mutexes, String path)
	{
		return mutexes.computeIfAbsent(path, p -> new InterProcessMutex(client, p));
	}

	static String mutex(int clients, double seconds, String path, int paths, ByteBuffer counter,
			boolean isShared) throws Exception
	{
		var common = new ConcurrentHashMap<String, InterProcessMutex>();
		return inParallel(clients, seconds, () ->
		{
			Map<String, InterProcessMutex> mutexes = isShared ? common : new HashMap<>();
			return () ->
			{
				InterProcessMutex mutex = choose(mutexes, path, paths);
				mutex.acquire();
				count(counter);
				mutex.release();
			};
		});
	}

	static String readWrite(int clients, double seconds, String path, int percent, ByteBuffer counter,
			boolean isShared) throws Exception
	{
		var common = new InterProcessReadWriteLock(client, path);
		var writes = new AtomicLong();
		long before = counter == null ? 0 : (long) LONG.getVolatile(counter, 0);
		String answer = inParallel(clients, seconds, () ->
		{
			var lock = isShared ? common : new InterProcessReadWriteLock(client, path);
			return () ->
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
			};
		});
		if (counter != null && (long) LONG.getVolatile(counter, 0) - before != writes.get())
			throw new IllegalStateException("two wrote at a time");
		return answer;
	}

	static String semaphore(int clients, double seconds, String path, int n, ByteBuffer inside,
			boolean isShared) throws Exception
	{
		var common = new InterProcessSemaphoreV2(client, path, n);
		return inParallel(clients, seconds, () ->
		{
			var semaphore = isShared ? common : new InterProcessSemaphoreV2(client, path, n);
			return () ->
			{
				Lease lease = semaphore.acquire();
				if (inside != null)
				{
					if ((long) LONG.getAndAdd(inside, 0, 1L) >= n)
						throw new IllegalStateException("too many have a lease");
					LONG.getAndAdd(inside, 0, -1L);
				}
				semaphore.returnLease(lease);
			};
		});
	}

	static String tries(int clients, double seconds, String path) throws Exception
	{
		return inParallel(clients, seconds, () ->
		{
			var mutex = new InterProcessMutex(client, path);
			return () ->
			{
				if (mutex.acquire(0, TimeUnit.SECONDS))
					throw new IllegalStateException("the lock was free");
			};
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
		try (CuratorFramework other = connect(otherHosts))
		{
			InterProcessMutex[] mutex = { new InterProcessMutex(client, path), new InterProcessMutex(other, path) };
			ExecutorService[] thread = { Executors.newSingleThreadExecutor(), Executors.newSingleThreadExecutor() };

			thread[0].submit(() -> { mutex[0].acquire(); return null; }).get();
			long end = System.nanoTime() + (long) (seconds * 1e9);
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
