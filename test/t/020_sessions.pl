# A server with a pool of sessions: what each carries, and what happens to each alone.

use strict;
use warnings;

use ZklockTest;

my $n = 3;
my $zk = ZooKeeper->new;
my @settings = (
	'zklock.session_timeout' => '30s',
	'zklock.on_lost' => 'notice',
	'zklock.linger' => 0);
my $pool = ZklockNode->started('pool', $zk, @settings,
	'zklock.sessions' => $n,
	'zklock.max_locks' => 12000,
	'zklock.max_locks_per_backend' => 12000,
	'max_worker_processes' => 16,
	'max_locks_per_transaction' => 1024,
	'restart_after_crash' => 'on');
my $single = ZklockNode->started('single', $zk, @settings);
my $judge = $pool->backend;
$judge->query('CREATE TABLE t (v text)');

sub owner_of { my ($directory, $i) = @_; return sprintf '0x%x', $zk->exists("$directory/" . $zk->children($directory)->[ $i // 0 ])->{ephemeralOwner}; }

# The number of the session that carries a lock that is held.
sub session_of
{
	my ($path) = @_;
	return $judge->query("SELECT session FROM zk_sessions WHERE session_id = '" . owner_of("/zklock$path") . "'");
}

# --- how they are seen ------------------------------------------------------------------------

is($judge->query("SELECT session, state IN ('connected', 'idle'), safe, epoch, ephemeral_bytes FROM zk_sessions ORDER BY 1"),
	join("\n", map { "$_|t|t|1|0" } 1 .. $n), 'zk_sessions has a row for each');
is($judge->query('SELECT count(DISTINCT session_id), count(DISTINCT worker_pid) FROM zk_sessions'), "$n|$n",
	'each with a session and a worker of its own');
is($judge->query(q{SELECT count(*) FROM pg_stat_activity JOIN zk_sessions ON pid = worker_pid WHERE backend_type = 'zklock worker'}),
	$n, 'which are in pg_stat_activity');
is($judge->query(q{SELECT state IN ('connected', 'idle'), safe, epoch, connects FROM zk_status}), "t|t|1|$n", 'zk_status sums them up');
is($single->safe_psql('postgres', 'SELECT count(*) FROM zk_sessions'), 1, 'one is the default');

# --- tickets spread over them by path -------------------------------------------------------------

my $holder = $pool->backend;
is($holder->query("SELECT count(*) FROM generate_series(1, 400) AS i WHERE zk_lock_acquire('/spread/' || i)"), 400, '400 locks');
my $bytes = $judge->query('SELECT ephemeral_bytes FROM zk_status');
cmp_ok($bytes, '>', 400 * 20, 'take up room');
is($judge->query("SELECT count(*) FROM zk_sessions WHERE ephemeral_bytes BETWEEN $bytes / $n * 0.6 AND $bytes / $n * 1.4"), $n,
	'in all sessions about the same');
is($judge->query('SELECT sum(ephemeral_bytes) FROM zk_sessions'), $bytes, 'and together what zk_status says');
is($judge->query(q{SELECT count(*) FROM zk_locks WHERE granted AND ticket = 'owned'}), 400, 'zk_locks shows all');
my %in_session;
push @{ $in_session{ session_of("/spread/$_") } }, "/spread/$_" foreach 1 .. 60;
is(join(' ', sort keys %in_session), join(' ', 1 .. $n), 'their znodes belong to all sessions');
is($single->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, 400) AS i WHERE zk_lock_acquire('/spread/' || i, '0')"), 0,
	'another server gets none of them');
is($holder->query('SELECT zk_lock_release_all()'), 400, 'all are released');
$judge->wait_until('SELECT entries = 0 AND ephemeral_bytes = 0 FROM zk_status');
is($single->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, 400) AS i WHERE zk_xact_lock_acquire('/spread/' || i, '0')"), 400,
	'then it gets all of them');

my ($one, $other) = map { $in_session{$_}[0] } 1, 2;
my $waiter = $single->backend;

# --- one lock, one multi-lock, one semaphore --------------------------------------------------------

$holder->query("BEGIN; SELECT zk_xact_multilock_acquire(ARRAY['$one', '$other'])");
isnt(session_of($one), session_of($other), 'the locks of a multi-lock are in two sessions');
$waiter->send("BEGIN; SELECT zk_xact_multilock_acquire(ARRAY['$one', '$other'])");
$single->wait_for_ticket($_, 'queued') foreach (sort $one, $other)[0];
$holder->query("INSERT INTO t VALUES ('multi'); COMMIT");
like($waiter->answer, qr/t$/, 'and are handed over together');
$waiter->query('COMMIT');

# Other servers tell by the session whose a lease is, so the inner mutex is in the same session.
my $acquire_leases = "SELECT zk_semaphore_acquire('/sem/' || i, 3, quantity => 2) FROM generate_series(1, 12) AS i";
is($holder->query("SELECT count(*) FROM ($acquire_leases) AS s"), 12, 'two leases of each of 12 semaphores');
my %owners;
foreach my $i (1 .. 12)
{
	my $directory = "/zklock/sem/$i/leases";
	is(owner_of($directory, 0), owner_of($directory, 1), "the leases of semaphore $i are in one session");
	$owners{ owner_of($directory, 0) } = $i;
}
cmp_ok(scalar keys %owners, '>', 1, 'but not all semaphores are');
foreach my $i (values %owners)
{
	my $owner = owner_of("/zklock/sem/$i/leases");
	my $blocked = $pool->backend;
	$blocked->send("SELECT zk_semaphore_acquire('/sem/$i', 3, quantity => 2)");
	$pool->wait_for_waiter("/sem/$i", 1);
	my $mutex = "/zklock/sem/$i/locks";
	$zk->wait_for_children($mutex, 1);
	$zk->wait_for_children("/zklock/sem/$i/leases", 3);
	my $foreign = $zk->create("/zklock/sem/$i/leases/_c_00000000-0000-4000-8000-000000000000-lease-", ephemeral => 1, sequence => 1);
	is(owner_of($mutex), $owner, "the waiter for semaphore $i has the mutex in the same session");
	is($single->safe_psql('postgres', "SELECT count(*) FILTER (WHERE holds) FROM zk_lock_queue('/sem/$i')"), 2,
		'so another server sees that the third lease is not held yet');
	$zk->delete($foreign);
	$holder->query("SELECT zk_semaphore_release('/sem/$i', 2)");
	is($blocked->answer, 't', 'it gets them');
	$blocked->quit;
}
$holder->query('SELECT zk_lock_release_all()');

# --- a worker ends, and its session is carried on ---------------------------------------------------------

$holder->query(acquire($one));
$holder->query(acquire($other));
my $sessions = $judge->query('SELECT session, session_id, epoch FROM zk_sessions ORDER BY 1');
my $workers = $judge->query('SELECT session, worker_pid FROM zk_sessions WHERE session <> 2 ORDER BY 1');
my $worker = $judge->query('SELECT worker_pid FROM zk_sessions WHERE session = 2');
$judge->query("SELECT pg_terminate_backend($worker)");
$judge->wait_until("SELECT worker_pid <> $worker AND state IN ('connected', 'idle') AND safe FROM zk_sessions WHERE session = 2");
is($judge->query('SELECT session, session_id, epoch FROM zk_sessions ORDER BY 1'), $sessions, 'a worker ended: the sessions are the same');
is($judge->query('SELECT session, worker_pid FROM zk_sessions WHERE session <> 2 ORDER BY 1'), $workers, 'and so are all other workers');
is($holder->query("SELECT zk_lock_is_held('$one'), zk_lock_is_held('$other')"), 't|t', 'both locks are held');

# --- a worker stands still ---------------------------------------------------------------------------------

$worker = $judge->query('SELECT worker_pid FROM zk_sessions WHERE session = 2');
kill 'STOP', $worker;
my $free = $in_session{1}[1];
is($holder->query(acquire($free)), 't', 'a worker stands still: paths of another session are acquired');
$holder->query("SELECT zk_lock_release('$free')");
is($holder->query(try($other)), 't', 'and so is what its session has already');
$waiter->send(acquire($one));
$pool->wait_until_contended($one);
$holder->query("SELECT zk_lock_release('$one')");
is($waiter->answer, 't', 'another lock is handed over');
$waiter->query("SELECT zk_lock_release('$one')");
kill 'CONT', $worker;
$holder->query("SELECT zk_lock_release('$other') FROM generate_series(1, 2)");

# --- one session expires -------------------------------------------------------------------------------------

$holder->query(acquire($one));
my ($both, $bystander) = map { $pool->backend } 1, 2;
my ($one_x, $other_x) = ($in_session{1}[1], $in_session{2}[1]);
$both->query("BEGIN; SELECT zk_xact_lock_acquire('$one_x'), zk_xact_lock_acquire('$other_x'); INSERT INTO t VALUES ('both')");
$bystander->query("BEGIN; SELECT zk_xact_lock_acquire('$in_session{1}[2]'), zk_xact_lock_acquire('$in_session{3}[0]');"
		. " INSERT INTO t VALUES ('bystander')");
my $mourner = $pool->backend;
$mourner->query("BEGIN; SELECT zk_xact_lock_acquire('$in_session{2}[2]'); INSERT INTO t VALUES ('mourner')");
my $queued = $pool->backend;
$waiter->query(acquire($in_session{2}[3]));
$queued->send(acquire($in_session{2}[3]));
$pool->wait_for_ticket($in_session{2}[3], 'queued');

$pool->expire_session($zk, session => 2, by_hand => 1);
is($judge->query('SELECT session, epoch FROM zk_sessions ORDER BY 1'), "1|1\n2|2\n3|1", 'a session expired: the others did not');
is($judge->query('SELECT epoch, expirations, safe, tickets_lost FROM zk_status'), '2|1|t|2', 'zk_status counts it');
is($holder->query("SELECT zk_lock_is_held('$one')"), 't', 'a lock in another session is held');
is($bystander->errcode('COMMIT'), '', 'and a holder of only such locks commits');
my $result = $both->run('COMMIT');
is($result->{errcode}, 'ZK001', 'a backend that has lost one of two does not');
like($result->{err}, qr/lock "\Q$other_x\E" was lost/, 'because of that one');
is($mourner->errcode('COMMIT'), 'ZK001', 'nor does a backend that had just one');
is($judge->query(q{SELECT string_agg(v, ' ' ORDER BY v) FROM t}), 'bystander multi', 'so it stands in the table');
$waiter->query("SELECT zk_lock_release('$in_session{2}[3]')");
is($queued->answer, 't', 'the waiter gets the lock in the new session');
is($judge->query("SELECT path FROM zk_locks WHERE claim = 'lost'"), '', 'no lost claim is left');
is($both->query("BEGIN; SELECT zk_xact_lock_acquire('$other_x'); INSERT INTO t VALUES ('again'); COMMIT"), 't', 'it can be acquired again');

# --- the guard sees sessions other than the first ---------------------------------------------------------------

my ($first, $third) = ($in_session{1}[3], $in_session{3}[0]);
$both->query("SET zklock.commit_margin = '11s'; BEGIN; SELECT zk_xact_lock_acquire('$third'); INSERT INTO t VALUES ('unsafe')");
$bystander->query("SET zklock.commit_margin = '11s'; BEGIN; SELECT zk_xact_lock_acquire('$first'); INSERT INTO t VALUES ('safe')");
my $stopped = $judge->query('SELECT worker_pid FROM zk_sessions WHERE session = 3');
kill 'STOP', $stopped;
$judge->wait_until("SELECT safe_until < now() + '10s' FROM zk_sessions WHERE session = 3");
$result = $both->run('COMMIT');
my $other_result = $bystander->run('COMMIT');
kill 'CONT', $stopped;
is($result->{errcode}, 'ZK001', 'a session that is not safe for long enough');
like($result->{err}, qr/lock "\Q$third\E" is in doubt/, 'leaves its lock in doubt');
is($other_result->{errcode}, '', 'but not that of another session');

# --- paths that look like parts of a semaphore ------------------------------------------------------------------

foreach my $path (map { ("/odd/$_/locks", "/odd/$_/locks/locks") } 1 .. 4)
{
	is($holder->query("SELECT zk_semaphore_acquire('$path', 2)"), 't', "semaphore $path");
	is($holder->query('SELECT zk_semaphore_acquire($$' . $path . '$$, 2)'), 't', 'and once more');
	is($bystander->query("SELECT zk_semaphore_acquire('$path', 2, '0')"), 'f', 'but not a third time');
	is($bystander->query("BEGIN; SELECT 1; COMMIT"), 1, 'the backend that tried goes on');
	is($holder->query("BEGIN; INSERT INTO t VALUES ('odd'); COMMIT; SELECT zk_semaphore_release('$path', 2)"), 't', 'the holder commits');
}

# A lock whose directory is that in which a semaphore keeps its leases.
foreach my $i (1 .. 8)
{
	is($holder->query("SELECT zk_semaphore_acquire('/both/$i', 3), zk_lock_acquire('/both/$i/leases')"), 't|t', "a lock in the leases of semaphore $i");
	is($bystander->query("SELECT zk_semaphore_acquire('/both/$i', 3, '0')"), 't', 'another lease');
	$bystander->query("SELECT zk_semaphore_release('/both/$i')");
	is($holder->query("SELECT zk_lock_release('/both/$i/leases'), zk_semaphore_release('/both/$i')"), 't|t', 'both are released');
}
$judge->wait_until("SELECT count(*) = 0 FROM zk_locks WHERE path LIKE '/both/%' OR path LIKE '/odd/%'");
is($judge->query('SELECT count(*) FROM zk_sessions WHERE safe'), $n, 'and all sessions go on');

# --- crash ---------------------------------------------------------------------------------------------------

$_->quit foreach $both, $bystander, $mourner;
$holder->query(acquire($in_session{$_}[0])) foreach 2 .. $n;
my @old = split /\n/, $judge->query('SELECT session_id FROM zk_sessions ORDER BY 1');
kill 'KILL', $queued->pid;
$pool->wait_until('SELECT NOT pg_is_in_recovery()');
$pool->wait_until_connected;
$zk->wait_until(sub { !$zk->has_session($_) }, "session $_ to be gone") foreach @old;
is($single->safe_psql('postgres', "SELECT zk_lock_acquire('$in_session{$_}[0]', '0')"), 't', "after a crash, the locks of session $_ are free at once")
  foreach 1 .. $n;
$_->kill_client foreach $holder, $judge, $queued;

# --- room ---------------------------------------------------------------------------------------------------

my $long_path = "rpad('/long/' || i || '/', 250, 'x')";
$holder = $pool->backend;
my $held = $holder->query(
	qq{
	DO \$\$
	BEGIN
		FOR i IN 1 .. 15000 LOOP
			PERFORM zk_lock_acquire($long_path);
		END LOOP;
	EXCEPTION
		WHEN configuration_limit_exceeded THEN NULL;
	END \$\$;
	SELECT count(*) FROM zk_locks WHERE granted});
cmp_ok($held, '>', 3000 * ($n - 1), "so many long paths do not fit into one session: $held");
is($pool->safe_psql('postgres', 'SELECT count(*) FROM zk_sessions WHERE ephemeral_bytes > 900000'), 0, 'and none of the pool has too many');
cmp_ok($pool->safe_psql('postgres', 'SELECT max(ephemeral_bytes) FROM zk_sessions'), '>', 899000, 'the fullest one is full');
my $room = $pool->safe_psql('postgres', 'SELECT session FROM zk_sessions ORDER BY ephemeral_bytes LIMIT 1');
is($holder->errcode(acquire($in_session{$room}[0])), '', 'there is room in another one');
like($holder->run("SELECT zk_lock_acquire($long_path) FROM generate_series(20000, 20100) AS i")->{err},
	qr/HINT:.*zklock\.sessions/, 'the hint names the setting');

# --- shutdown ---------------------------------------------------------------------------------------------------

@old = split /\n/, $pool->safe_psql('postgres', 'SELECT session_id FROM zk_sessions');
$holder->quit;
$pool->stop;
$zk->wait_until(sub { !$zk->has_session($_) }, "session $_ to be gone") foreach @old;
is(scalar(@{ [ glob $pool->data_dir . '/pg_stat_tmp/zklock.session*' ] }), 0, 'shutdown: all sessions are closed');
$single->stop;
done_testing();
