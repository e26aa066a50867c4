# What happens where there is no zklock, no worker, or no room.

use strict;
use warnings;

use ZklockTest;

# Three servers: too large a transaction would end all of them.
my $zk = ZooKeeper->new(servers => 3);

# --- not preloaded ---------------------------------------------------------------------------

my $node = ZklockNode->initialized('n', $zk, 'shared_preload_libraries' => undef,
	'zklock.session_timeout' => '20s', 'zklock.linger' => 0);
$node->start;
my ($rc, $out, $err) = $node->psql('postgres', 'CREATE EXTENSION zklock');
is($rc, 0, 'not preloaded: the extension can be made');
like($err, qr/WARNING:  zklock is not loaded via "shared_preload_libraries"\n.*^HINT:  .*restart the server\.$/ms,
	'which warns, and says what to do');
my $s = $node->backend;
foreach my $sql (
	acquire('/a'), "SELECT zk_xact_lock_acquire('/a', '0')", release('/a'),
	'SELECT zk_lock_release_all()', held('/a'), token('/a'),
	'SELECT * FROM zk_locks', 'SELECT * FROM zk_status')
{
	my $result = $s->run($sql);
	is($result->{errcode}, '55000', "not preloaded: $sql");
	like($result->{err}, qr/shared_preload_libraries/, 'and what to do');
}
is($s->query('SHOW zklock.hosts'), $zk->hosts, 'not preloaded: settings are there');
is($s->query('SELECT 1'), 1, 'not preloaded: the session goes on');
$s->quit;
is($node->errcode('DROP EXTENSION zklock'), '', 'not preloaded: the extension can be dropped');

# --- no worker --------------------------------------------------------------------------------

$node->configure(
	'shared_preload_libraries' => 'zklock',
	'max_worker_processes' => 0,
	'zklock.connection_timeout' => '2s');
$node->restart;
(undef, undef, $err) = $node->psql('postgres', 'CREATE EXTENSION zklock');
is($err, '', 'preloaded: no warning');
like(slurp_file($node->logfile), qr/too many background workers\n.*CONTEXT:  registering the background worker "$_"/s, "no worker: the log names $_")
	foreach 'zklock worker', 'zklock claims';
$s = $node->backend;
foreach my $call ("'/a'", "'/a', '1h'", "'/a', '500ms'", "'/a', '0'")
{
	foreach my $function ('zk_lock_acquire', 'zk_xact_lock_acquire')
	{
		my $result = $s->run("SELECT $function($call)");
		is($result->{errcode}, '55000', "no worker: $function($call)");
		like($result->{err}, qr/worker is not running/, 'and why');
		cmp_ok($result->{seconds}, '<', 2 + 5, 'and not later than after zklock.connection_timeout');
	}
}
is($s->query('SELECT state, worker_pid, safe, entries FROM zk_status'), 'none||f|0', 'no worker: zk_status');
is($s->query('SELECT count(*) FROM zk_locks'), 0, 'no worker: zk_locks');
is($s->query(held('/a')), 'f', 'no worker: nothing is held');
is($s->query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), 0, 'no worker: no advisory lock is left');
$s->quit;

# --- no entries ------------------------------------------------------------------------------------

$node->configure('max_worker_processes' => 8, 'zklock.max_locks' => 16, 'zklock.connection_timeout' => '30s');
$node->restart;
$node->wait_until_connected;
$s = $node->backend;
my $other = $node->backend;
my $third = $node->backend;
is($s->query("SELECT count(*) FROM generate_series(1, 16) AS i WHERE zk_lock_acquire('/n/' || i)"), 16, '16 locks');
is($s->query('SELECT entries, max_locks FROM zk_status'), '16|16', 'zk_status says so');
foreach my $sql (acquire('/n/17'), "SELECT zk_xact_lock_acquire('/n/17', '0')")
{
	foreach my $backend ($s, $other)
	{
		my $result = $backend->run($sql);
		is($result->{errcode}, '53400', "not a 17th: $sql");
		like($result->{err}, qr/HINT:.*zklock\.max_locks/, 'and what to do');
	}
}
# What is set aside for leaderships is in use while the others have used up theirs.
$node->set('zklock.leader_of', '/lead/1,/lead/2');
$node->wait_until(q{SELECT zk_is_leader('/lead/1') AND zk_is_leader('/lead/2')});
is($node->status('entries'), 18, 'leaderships have entries of their own');
is($s->errcode(acquire('/n/17')), '53400', 'which are no room for others');
is($s->errcode(q{SELECT zk_claim_request('/n/17', '1 min')}), '53400', 'nor for claims');
$node->safe_psql('postgres', q{SELECT zk_leader_resign('/lead/1', '1 ms')});
$node->wait_until(q{SELECT zk_is_leader('/lead/1')});
pass('it leads again in the full table');
$s->query(release('/n/1'));
$node->wait_until('SELECT entries = 17 FROM zk_status');		# an entry outlasts the release for a moment
is($s->errcode(acquire('/n/1')), '53400', 'nor is what others give up, as long as there are more than they may have');
is($s->query(acquire('/n/2')), 't', 'what is held can be acquired again');
$s->query(release('/n/2'));
$node->set('zklock.leader_of', '');
$node->wait_until('SELECT entries <= 15 FROM zk_status');
is($s->query(acquire('/n/1')), 't', 'it leaves room for others when it stands no more');

is($s->query(acquire('/n/3')), 't', 'one of them can be acquired again');
is($other->query(try('/n/3')), 'f', 'and tried by others');
$other->send(acquire('/n/3'));
$node->wait_for_waiter('/n/3', 1);
$third->send(acquire('/n/3'));
$node->wait_for_waiter('/n/3', 2);
$s->query("SELECT zk_lock_release('/n/3') FROM generate_series(1, 2)");
is($other->answer, 't', 'and waited for');
$other->query(release('/n/3'));
is($third->answer, 't', 'by several');
$third->query(release('/n/3'));

# An entry that is released can be used for another path.
$node->wait_until('SELECT entries = 15 FROM zk_status');
is($s->query(acquire('/n/17')), 't', 'there is room again');
$s->query("BEGIN; SAVEPOINT s");
is($s->errcode("SELECT zk_xact_lock_acquire('/n/18')"), '53400', 'no room in a savepoint');
is($s->query("ROLLBACK TO s; SELECT zk_lock_is_held('/n/17')"), 't', 'does no harm');
$s->query('COMMIT');
is($s->query('SELECT zk_lock_release_all()'), 16, 'all are released');
$node->wait_until('SELECT entries = 0 FROM zk_status');
foreach my $round (1 .. 3)
{
	is($s->query("BEGIN; SELECT count(*) FROM generate_series(1, 16) AS i WHERE zk_xact_lock_acquire('/n/' || $round || i)"),
		16, "and 16 others, $round");
	is($s->errcode("SELECT zk_xact_lock_acquire('/n/0')"), '53400', 'not more');
	$s->query('ROLLBACK');
	$node->wait_until('SELECT entries = 0 FROM zk_status');
}
$_->quit foreach $s, $other, $third;

# --- no room in PostgreSQL's own lock table ----------------------------------------------------------

# zklock takes half of the table at most, so that other locks, and new connections, go on.
my $at = -s $node->logfile;
$node->configure('zklock.max_locks' => 8192, 'max_locks_per_transaction' => 10, 'max_connections' => 10);
$node->restart;
$node->wait_until_connected;
my $slots = 10 * $node->safe_psql('postgres', q{SELECT sum(setting::int) + 1 FROM pg_settings
	WHERE name IN ('max_connections', 'autovacuum_max_workers', 'max_worker_processes', 'max_wal_senders', 'max_prepared_transactions')});
my $limit = $node->status('max_locks');
cmp_ok($limit, '>=', $slots / 2, "half of PostgreSQL's lock table: $limit");
cmp_ok($limit, '<', $slots, 'and not all of it');
my $log = slurp_file($node->logfile, $at);
like($log, qr/WARNING:  "zklock.max_locks" \(8192\) is more than PostgreSQL's lock table carries/, 'the log says so');
like($log, qr/DETAIL:  The limit is $limit locks/, 'and how many it carries');
my ($needed) = $log =~ /HINT:  Set "max_locks_per_transaction" to at least (\d+)\./;
$s = $node->backend;
$other = $node->backend;
my $take = "SELECT zk_xact_lock_acquire('/many/' || i) FROM generate_series(1, 3000) AS i";
my $full = $s->run($take);
is($full->{errcode}, '53400', "zklock's own limit is the first");
like($full->{err}, qr/HINT:.*max_locks_per_transaction/, 'and what to do');
$node->wait_until('SELECT entries = 0 FROM zk_status');

is($s->query("SELECT count(*) FROM generate_series(1, $limit) AS i WHERE zk_lock_acquire('/many/' || i)"), $limit, 'as many as that');
is($other->errcode(acquire('/many/0')), '53400', 'not one more');
is($node->safe_psql('postgres', 'CREATE TABLE goes_on (i int); DROP TABLE goes_on; SELECT 1'), 1, 'new connections go on');
$s->query('SELECT zk_lock_release_all()');
$node->wait_until('SELECT entries = 0 FROM zk_status');

# If other locks have filled the table, that does no harm either.
is($other->errcode('SELECT pg_advisory_lock(i) FROM generate_series(1, 100000) AS i'), '53200', 'the table is full');
is($s->errcode($take), '53200', 'no lock of zklock');
$other->query('SELECT pg_advisory_unlock_all()');
$node->wait_until('SELECT entries = 0 FROM zk_status');
is($s->query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), 0, 'nothing is left');
is($s->query(acquire('/many/1')), 't', 'and the server locks on');
$_->quit foreach $s, $other;

# Following the hint is enough.
$at = -s $node->logfile;
$node->configure('max_locks_per_transaction' => $needed);
$node->restart;
$node->wait_until_connected;
is($node->status('max_locks'), 8192, 'the hint works');
unlike(slurp_file($node->logfile, $at), qr/lock table carries/, 'and nothing is said any more');

# --- no room in the session -------------------------------------------------------------------------------

# When a session ends, ZooKeeper deletes all its znodes in one transaction, so their number is limited.
# Two znodes are of the server itself: its record, and its place among the primaries.
sub ephemerals { my ($n) = $zk->cmd('mntr', $_[0]) =~ /zk_ephemerals_count\s+(\d+)/; return $n // -1; }
sub wait_for_no_ephemerals
{
	foreach my $i (1 .. 3)
	{
		$zk->wait_until(sub { ephemerals($i) == 2 }, "ZooKeeper server $i to have no ephemerals but the server's own");
	}
	return;
}

$node->configure('max_locks_per_transaction' => 512, 'zklock.max_locks' => -1, 'zklock.max_locks_per_backend' => 10000);
$node->restart;
$node->wait_until_connected;
wait_for_no_ephemerals();
$s = $node->backend;
my $leader = $zk->leader;
my $long_path = "rpad('/long/' || i || '/', 250, 'x')";
my $session = $node->status('session_id');

my $result = $s->run("SELECT zk_xact_lock_acquire($long_path) FROM generate_series(1, 3000) AS i");
is($result->{errcode}, '53400', 'too many long paths in one transaction');
like($result->{err}, qr/session of this server holds as many locks as it safely can/, 'and why');
like($result->{err}, qr/HINT/, 'and what to do');
$node->wait_until('SELECT entries = 0 AND ephemeral_bytes = 0 FROM zk_status');
wait_for_no_ephemerals();
pass('all are released');
is($node->status(q{session_id, state IN ('connected', 'idle')}), "$session|t", 'in the same session');

# The session ends while it holds as much as it may.
is($s->errcode(
		qq{
	DO \$\$
	BEGIN
		FOR i IN 1..3000 LOOP
			PERFORM zk_lock_acquire($long_path);
		END LOOP;
	EXCEPTION
		WHEN configuration_limit_exceeded THEN RAISE NOTICE 'enough';
	END \$\$}), '', 'as many as it may hold');
my $held = $node->safe_psql('postgres', 'SELECT count(*) FROM zk_locks WHERE granted');
cmp_ok($held, '>', 2000, 'thousands');
cmp_ok($node->status('ephemeral_bytes'), '<=', 900000, 'but not too many bytes');
ok($zk->wait_until(sub { ephemerals(1) == $held + 2 }, 'one of the servers to have heard of all'), 'as ZooKeeper sees it, too');
$node->restart;
wait_for_no_ephemerals();
is($zk->leader, $leader, 'the ensemble survives the end of such a session');
is($zk->mode($_) =~ /^(leader|follower)$/, 1, "server $_ serves") foreach 1 .. 3;
$zk->wait_until(sub { $zk->cmd('mntr', $leader) =~ /^zk_synced_followers\s+2\b/m }, 'the followers to be in sync');
unlike(slurp_file("$zk->{directory}/$_/log"), qr/Unreasonable length/, "server $_ has lost no other") foreach 1 .. 3;
$node->wait_until_connected;
is($node->safe_psql('postgres', acquire('/a')), 't', 'and locks go on');

wait_for_no_ephemerals();
pass('nothing is left');
$node->stop;
done_testing();
