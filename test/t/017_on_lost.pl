
# zklock.on_lost: what happens to a session that loses a lock, whatever it does at that moment.

use strict;
use warnings;

use PgWire;
use ZklockTest;

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('a', $zk, 'zklock.session_timeout' => '20s', 'zklock.linger' => 0,
	'wal_level' => 'logical', 'max_wal_senders' => 2, 'wal_retrieve_retry_interval' => '100ms');
$node->safe_psql('postgres', q{
	CREATE TABLE t (v text); CREATE TABLE steps (v text);
	CREATE ROLE patient LOGIN SUPERUSER; ALTER ROLE patient SET zklock.on_lost = notice;
	CREATE DATABASE strict; ALTER DATABASE strict SET zklock.on_lost = terminate;
	CREATE PROCEDURE go_on(inner_sleep int) LANGUAGE plpgsql AS $$ BEGIN
		BEGIN PERFORM pg_sleep(inner_sleep); EXCEPTION WHEN SQLSTATE 'ZK001' THEN RAISE NOTICE 'caught'; END;
		INSERT INTO t VALUES ('after the loss');
	END $$;
	CREATE PROCEDURE commit_and_go_on(path text) LANGUAGE plpgsql AS $$ BEGIN
		PERFORM zk_xact_lock_acquire(path); INSERT INTO t VALUES ('fine'); COMMIT;
		PERFORM pg_sleep(0.01); INSERT INTO t VALUES ('fine');
	END $$;
	CREATE FUNCTION deep(n int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
		IF n = 0 THEN PERFORM pg_sleep(170); ELSE PERFORM deep(n - 1); END IF; END $$; });
$node->safe_psql('strict', 'CREATE EXTENSION zklock');

my $watcher = $node->backend;
$watcher->query('BEGIN; LOCK TABLE steps; SAVEPOINT s');		# for backends that are to wait for a row or table

my $number = 0;

# A session that has a lock in a transaction or not; returns it and the path.
sub holder
{
	my ($on_lost, %how) = @_;
	my $path = '/on_lost_' . ++$number;
	my $backend = $node->backend(dbname => $how{dbname} // 'postgres', extra_params => [ '-U', $how{role} // 'postgres' ]);
	$backend->query("SET zklock.on_lost = $on_lost") if $on_lost;
	$backend->query($_) foreach @{ $how{before} // [] };
	my $function = $how{xact} ? 'zk_xact_lock_acquire' : 'zk_lock_acquire';
	$backend->query("SELECT $function('$path')");
	return ($backend, $path);
}

# Delete the lock's znode, and wait until the server knows that.
sub lose
{
	my ($path) = @_;
	$zk->delete("/zklock$path/" . $zk->children("/zklock$path")->[0]);
	$node->wait_until("SELECT count(*) = 0 FROM zk_locks WHERE path = '$path' AND claim = 'held'");
	return;
}

sub is_alive
{
	my ($backend) = @_;
	return $node->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $backend->pid);
}

sub wait_until_gone
{
	my ($backend, $path) = @_;
	$node->wait_until('SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $backend->pid);
	$node->wait_until("SELECT count(*) = 0 FROM zk_locks WHERE path = '$path'");
	return 1;
}

sub wait_until_active
{
	my ($backend, $event) = @_;
	return $node->wait_until("SELECT wait_event = '$event' FROM pg_stat_activity WHERE state = 'active' AND pid = " . $backend->pid);
}

# The message says which lock, when and why, and what to do.
sub tells_loss
{
	my ($result, $level, $path, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($result->{err}, qr/$level:  ZK001: lock "\Q$path\E" was lost/, "$what: names the lock");
	like($result->{err}, qr/DETAIL:  (Another client has deleted its znode|The ZooKeeper session that held it has expired), as this server noticed at 2\d{3}-/, "$what: says why and when");
	return;
}

my %running = (
	'asleep' => [ 'SELECT pg_sleep(170)', 'PgSleep' ],
	'waiting for a table' => [ 'SELECT * FROM steps', 'relation' ],
	'in a function' => [ 'SELECT deep(3)', 'PgSleep' ],
	'in a DO block' => [ 'DO $$ BEGIN PERFORM deep(1); END $$', 'PgSleep' ],
	'in a procedure that goes on' => [ 'CALL go_on(170)', 'PgSleep' ],
	'waiting for another lock' => [ acquire('/taken'), undef ]);

$watcher->query(acquire('/taken'));

# --- cancel ---

foreach my $state (sort keys %running)
{
	my ($statement, $event) = @{ $running{$state} };
	foreach my $xact ($statement =~ /go_on/ ? 0 : (0, 1))
	{
		my $what = "cancel, $state, " . ($xact ? 'in a transaction' : 'autocommit');
		my ($backend, $path) = holder('cancel', xact => $xact, before => $xact ? ['BEGIN'] : []);
		$backend->send($statement);
		if ($event) { wait_until_active($backend, $event) }
		else { $node->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/taken' AND claim = 'waiting'}) }
		lose($path);
		my $result = $backend->result;
		is($result->{errcode}, 'ZK001', $what);
		tells_loss($result, 'ERROR', $path, $what);
		like($result->{err}, $xact ? qr/HINT:  Retry the transaction/ : qr/HINT:  Release the lock with "zk_lock_release"/,
			"$what: says what to do");
		like($result->{err}, qr/CONTEXT:.*deep\(integer\)/s, "$what: says where") if $statement =~ /deep/;
		like($result->{err}, qr/caught/, "$what: a block that catches it cannot commit") if $statement =~ /go_on/;
		unlike($result->{err}, qr/user request/, "$what: and nothing else");
		is($backend->errcode('SELECT 1'), $xact ? '25P02' : '', "$what: the session goes on");
		$backend->quit;
	}
}

# The statement waits in the parser, after an error of the parser.  No hook sees its error, not even that for the log.
foreach my $xact (0, 1)
{
	my $what = 'cancel, in the parser, ' . ($xact ? 'in a transaction' : 'autocommit');
	my ($backend, $path) = holder('cancel', before => [ q{SET log_min_messages = 'fatal'}, $xact ? 'BEGIN; SAVEPOINT s' : () ]);
	is($backend->errcode('SELEC 1'), '42601', "$what: an error of the parser");
	$backend->query('ROLLBACK TO s') if $xact;
	$backend->send('SELECT * FROM steps');
	wait_until_active($backend, 'relation');
	lose($path);
	tells_loss($backend->result, 'ERROR', $path, $what);
	$backend->quit;
}

# PostgreSQL clears the list of error contexts after each error, and in the extended protocol adds one of its own before
# any hook runs.  An error outside of a transaction calls no callback.
my @stale = ('26000', [ B => pack 'Z*Z*nnn', '', 'unknown', 0, 0, 0 ], [ S => '' ]);
my @unlogged = ('SELECT zk_lock_acquire(%s || $$/other$$)', q{SET log_min_messages = 'fatal'});
foreach my $case (
	[ 'an early error', [], [ '22012', PgWire::extended('SELECT 1/0') ], [ 'BEGIN', 'SELECT zk_xact_lock_acquire(%s)' ], 'SELECT deep(1)' ],
	[ 'a stale statement, in a transaction', \@unlogged, \@stale, [ 'BEGIN', 'SELECT zk_xact_lock_acquire(%s)' ], 'SELECT deep(1)' ],
	[ 'a stale statement', \@unlogged, \@stale, [], 'SELECT zk_xact_lock_acquire(%s), deep(1)' ],
	[ 'a stale statement, in the parser', ['SELECT zk_lock_acquire(%s)'], \@stale, [], 'SELECT * FROM steps' ])
{
	my ($what, $before, $error, $after, $statement) = @$case;
	my ($code, @messages) = @$error;
	my $path = '/on_lost_' . ++$number;
	my $pg = PgWire->new($node->host, $node->port, 'extended');
	$pg->execute(sprintf $_, "'$path'") foreach @$before;
	$pg->send(@messages);
	is($pg->result->{error}, $code, "extended protocol, $what: an error");
	$pg->execute(sprintf $_, "'$path'") foreach @$after;
	$pg->send(PgWire::extended(sprintf $statement, "'$path'"));
	wait_until_active($pg, $statement =~ /deep/ ? 'PgSleep' : 'relation');
	lose($path);
	is($pg->result->{error}, 'ZK001', "extended protocol, $what: cancel");
	$pg->close;
}
{
	my $what = 'cancel, in the parser, after an error before the first lock';
	my ($backend, $path) = ($node->backend, '/on_lost_' . ++$number);
	is($backend->errcode('SELECT 1/0'), '22012', "$what: an error");
	$backend->query('BEGIN');
	$backend->query("SELECT zk_xact_lock_acquire('$path')");
	$backend->send('SELECT * FROM steps');
	wait_until_active($backend, 'relation');
	lose($path);
	tells_loss($backend->result, 'ERROR', $path, $what);
	$backend->quit;
}

# Idle in a transaction: as for a recovery conflict, there is nothing to cancel.
foreach my $read_only (0, 1)
{
	my $what = 'cancel, idle in transaction' . ($read_only ? ', session-level' : '');
	my ($backend, $path) = holder('cancel', xact => !$read_only, before => ['BEGIN']);
	lose($path);
	ok(wait_until_gone($backend, $path), "$what: the connection ends");
	my $result = $backend->run('SELECT 1');
	is($result->{errcode}, 'ZK001', "$what: the client is told");
	tells_loss($result, 'FATAL', $path, $what);
	like($result->{err}, qr/HINT:  .*"zklock\.on_lost".*Reconnect/, "$what: says what to do");
	ok(slurp_file($node->logfile) =~ /FATAL:  lock "\Q$path\E" was lost/, "$what: so is the log");
}

# In a failed transaction, or outside of any, nothing is at stake.
{
	my ($backend, $path) = holder('cancel', before => ['BEGIN']);
	$backend->errcode('SELECT 1/0');
	lose($path);
	is($backend->errcode('SELECT 1'), '25P02', 'cancel, failed transaction: goes on');
	is($backend->errcode('ROLLBACK'), '', 'cancel, failed transaction: rolls back');
	is($backend->errcode(q{INSERT INTO t VALUES ('x')}), 'ZK001', 'cancel, failed transaction: the lock is still lost');
	$backend->quit;

	($backend, $path) = holder('cancel');
	lose($path);
	my $result = $backend->run('SELECT 1');
	is($result->{out}, '1', 'cancel, idle: goes on');
	tells_loss($result, 'WARNING', $path, 'cancel, idle, a transaction that reads');
	tells_loss($backend->run(q{INSERT INTO t VALUES ('x')}), 'ERROR', $path, 'cancel, idle, a transaction that writes');
	is($backend->query(release($path)), 'f', 'cancel, idle: released');
	is($backend->errcode(q{INSERT INTO t VALUES ('fine')}), '', 'cancel, idle: and can write');
	$backend->quit;
}

# --- terminate ---

foreach my $state ('idle', 'idle in transaction', 'idle in a failed transaction', sort keys %running)
{
	my $what = "terminate, $state";
	my ($statement, $event) = @{ $running{$state} // [] };
	my ($backend, $path) = holder('', dbname => 'strict', before => $state eq 'idle' ? [] : ['BEGIN']);
	next if $statement && $statement =~ /deep|go_on|steps/;	# they are in the other database
	is($backend->errcode($_), $_ =~ /SELECT/ ? '22012' : '42601', "$what: an error") foreach $state =~ /failed/ ? ('SELECT 1/0', 'SELEC 1') : ();
	if ($statement)
	{
		$backend->send($statement);
		if ($event) { wait_until_active($backend, $event) }
		else { $node->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/taken' AND claim = 'waiting'}) }
	}
	lose($path);
	ok(wait_until_gone($backend, $path), "$what: the connection ends");
	my $result = $statement ? $backend->result : $backend->run('SELECT 1');
	is($result->{errcode}, 'ZK001', "$what: the client is told");
	tells_loss($result, 'FATAL', $path, $what);
}

# --- notice ---

{
	my $what = 'notice, running';
	my ($backend, $path) = holder('', role => 'patient', xact => 1, before => ['BEGIN']);
	$backend->query(q{INSERT INTO t VALUES ('lost')});
	$backend->send('LOCK TABLE steps');
	wait_until_active($backend, 'relation');
	lose($path);
	$watcher->query('ROLLBACK TO s');
	ok(!$backend->is_done, "$what: still waits");
	$watcher->query('ROLLBACK; BEGIN');
	my $result = $backend->result;
	is($result->{errcode}, '', "$what: the statement succeeds");
	tells_loss($result, 'WARNING', $path, $what);
	is($backend->run('SELECT 1')->{err}, '', "$what: told once");
	tells_loss($backend->run('COMMIT'), 'ERROR', $path, "$what, COMMIT");
	$backend->quit;

	$what = 'notice, idle in transaction';
	($backend, $path) = holder('', role => 'patient', xact => 1, before => ['BEGIN']);
	lose($path);
	$result = $backend->run('SELECT 1');
	is($result->{out}, '1', "$what: goes on");
	tells_loss($result, 'WARNING', $path, $what);
	tells_loss($backend->run('COMMIT'), 'ERROR', $path, "$what, COMMIT");
	$backend->quit;

	# a cancel that a user requests still counts
	$what = 'notice, cancelled by hand';
	($backend, $path) = holder('notice');
	$backend->send('SELECT pg_sleep(170)');
	wait_until_active($backend, 'PgSleep');
	lose($path);
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $backend->pid . ')');
	is($backend->result->{errcode}, '57014', "$what: says so");
	is(is_alive($backend), '1', "$what: alive");
	$backend->quit;
}

$watcher->query('ROLLBACK');
$watcher->quit;

# All locks are lost while the backend waits behind another one, and the loss ends that wait, too.
foreach my $round (1 .. 3)
{
	my $what = "notice, waits within the server, $round";
	my ($backend, $path) = holder('notice');
	my $other = $node->backend;
	$other->query("SET zklock.on_lost = notice; SELECT zk_lock_acquire('/behind')");
	$backend->send(acquire('/behind', '2min'));
	$node->wait_for_waiter('/behind', 1);
	$node->expire_session($zk, by_hand => 1);
	my $result = $backend->result;
	is($result->{errcode}, '', "$what: goes on");
	is($result->{out}, 't', "$what: and gets the lock");
	tells_loss($result, 'WARNING', $path, $what);
	$backend->run('SELECT zk_lock_release_all()');
	$_->quit foreach $backend, $other;
}

# --- in the middle of a commit, after the guard has been passed ---

my $fine = $node->safe_psql('postgres', q{SELECT count(*) FROM t WHERE v = 'fine'});
foreach my $on_lost ('cancel', 'terminate')
{
	my $what = "$on_lost, commit waits for a standby";
	my ($backend, $path) = holder($on_lost, before => ['SET synchronous_commit = on', $on_lost eq 'cancel' ? 'SET log_duration = on' : ()]);
	$backend->query("BEGIN; SELECT zk_xact_lock_acquire('$path'); INSERT INTO t VALUES ('fine')");
	$node->hang_commits;
	$backend->send('COMMIT');
	wait_until_active($backend, 'SyncRep');
	lose($path);
	ok(!$backend->is_done, "$what: goes on waiting");
	$node->set('synchronous_standby_names', '');
	unlike($backend->result->{err}, qr/standby|cancel|ERROR/, "$what: and commits");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM t WHERE v = 'fine'}), ++$fine, "$what: what it wrote is there");
	$on_lost eq 'cancel' ? like($backend->run('SELECT 1')->{err}, qr/WARNING:  ZK001/, "$what: then reading warns")
	  : ok(wait_until_gone($backend, $path), "$what: then the connection ends");
	$backend->quit if $on_lost eq 'cancel';
}

# What comes after the commit in the same message is cancelled.
{
	my $what = 'cancel, commit waits for a standby, and a statement follows';
	my ($backend, $path) = holder('cancel', before => ['SET synchronous_commit = on']);
	$node->hang_commits;
	$backend->send(q{BEGIN\; INSERT INTO t VALUES ('fine')\; COMMIT\; SELECT pg_sleep(170)});
	wait_until_active($backend, 'SyncRep');
	lose($path);
	$node->set('synchronous_standby_names', '');
	tells_loss($backend->result, 'ERROR', $path, $what);
	is($node->safe_psql('postgres', q{SELECT count(*) FROM t WHERE v = 'fine'}), ++$fine, "$what: what was committed is there");
	$backend->quit;
}

# The lock of a transaction that has ended does not concern the next one, and the session keeps its own.
foreach my $on_lost ('cancel', 'terminate')
{
	my $what = "$on_lost, a procedure commits and goes on";
	my ($backend, $path) = holder($on_lost, before => ['SET synchronous_commit = on']);
	$node->hang_commits;
	$backend->send("CALL commit_and_go_on('$path/xact')");
	wait_until_active($backend, 'SyncRep');
	lose("$path/xact");
	$node->set('synchronous_standby_names', '');
	is($backend->result->{errcode}, '', "$what: it succeeds");
	$fine += 2;
	is($node->safe_psql('postgres', q{SELECT count(*) FROM t WHERE v = 'fine'}), $fine, "$what: with all its work");
	is($backend->query("SELECT zk_lock_is_held('$path')"), 't', "$what: the session's own lock is held");
	$backend->quit;
}

# COMMIT PREPARED is refused in a transaction block, which goes on from a savepoint.
my ($refused, $refused_path) = holder('cancel', xact => 1, before => [ 'BEGIN' ]);
$refused->query('SAVEPOINT s');
is($refused->errcode(q{COMMIT PREPARED 'none'}), '25001', 'COMMIT PREPARED in a transaction block: refused');
$refused->query('ROLLBACK TO s');
$refused->send('SELECT pg_sleep(170)');
$node->wait_until(q{SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = } . $refused->pid);
lose($refused_path);
is($refused->result->{errcode}, 'ZK001', 'COMMIT PREPARED in a transaction block: a loss still cancels');
$refused->quit;

is($node->safe_psql('postgres', q{SELECT count(*) FROM t WHERE v <> 'fine'}), '0', 'nothing was written without its lock');

# --- a background process: one that applies the changes that another database publishes ---

$node->safe_psql('postgres', q{CREATE TABLE news (v text); CREATE PUBLICATION news FOR TABLE news; CREATE DATABASE reader;});
$node->safe_psql('reader', <<'END');
	CREATE EXTENSION zklock;
	CREATE TABLE news (v text UNIQUE);
	CREATE FUNCTION on_news() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$ BEGIN
		IF NEW.v = 'first' THEN PERFORM zk_lock_acquire('/applied'); END IF;
		IF NEW.v = 'third' THEN PERFORM zk_xact_lock_acquire('/applied/xact'); END IF; RETURN NULL; END $$;
	CREATE TRIGGER on_news AFTER INSERT ON news FOR EACH ROW EXECUTE FUNCTION on_news();
	ALTER TABLE news ENABLE ALWAYS TRIGGER on_news;
END
$node->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('news', 'pgoutput')});
$node->safe_psql('reader', sprintf(<<'END', $node->host, $node->port));
	CREATE SUBSCRIPTION news CONNECTION 'host=%s port=%s user=postgres dbname=postgres' PUBLICATION news
		WITH (create_slot = false, copy_data = false)
END
$node->safe_psql('postgres', q{INSERT INTO news VALUES ('first')});
$node->wait_until(q{SELECT bool_or(claim = 'held') FROM zk_locks WHERE path = '/applied'});
my $applies = $node->safe_psql('postgres', 'SELECT pid FROM pg_stat_subscription');
my $log_at = -s $node->logfile;
lose('/applied');

# The process also hears of changes that it does not apply.
my $lsn = $node->safe_psql('postgres', q{INSERT INTO t VALUES ('fine'); SELECT pg_current_wal_lsn()});
$node->wait_until("SELECT latest_end_lsn >= '$lsn' FROM pg_stat_subscription");
is($node->safe_psql('postgres', 'SELECT pid FROM pg_stat_subscription'), $applies, 'an idle background process goes on');
$node->safe_psql('postgres', q{INSERT INTO news VALUES ('second')});
$node->wait_for_log(qr/\[$applies\] ERROR:  lock "\/applied" was lost/, $log_at);
pass('but applies nothing without its lock');

# The next process has an error of its own.  Then it waits for a row in a transaction, and not in a statement.
my $reader = $node->backend(dbname => 'reader');
$reader->query(q{INSERT INTO news VALUES ('known')});
$node->safe_psql('postgres', $_) foreach q{INSERT INTO news VALUES ('known')}, q{INSERT INTO news VALUES ('third'), ('held up')};
$node->wait_for_log(qr/ERROR:  (?:duplicate key value|conflict detected)/, $log_at);
$reader->query($_) foreach q{DELETE FROM news WHERE v = 'known'}, 'BEGIN', q{INSERT INTO news VALUES ('held up')};
$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_subscription AS s JOIN pg_locks AS l USING (pid) WHERE NOT l.granted});
$applies = $node->safe_psql('postgres', 'SELECT pid FROM pg_stat_subscription');
$zk->delete('/zklock/applied/xact/' . $zk->children('/zklock/applied/xact')->[0]);
$node->wait_for_log(qr/\[$applies\] ERROR:  (?:lock|canceling) .*/, $log_at);
like(slurp_file($node->logfile, $log_at), qr/\[$applies\] ERROR:  lock "\/applied\/xact" was lost/, 'its loss cancels the transaction, and the log says why');
$reader->quit;
$node->safe_psql('reader', 'ALTER SUBSCRIPTION news DISABLE; ALTER SUBSCRIPTION news SET (slot_name = NONE); DROP SUBSCRIPTION news');

# --- the setting ---

my ($status, $out, $err) = $node->psql('postgres', 'SET zklock.on_lost = whatever');
like($err, qr/invalid value for parameter "zklock.on_lost".*HINT:  Available values: cancel, terminate, notice/s, 'bad value');
is($node->safe_psql('postgres', 'SHOW zklock.on_lost'), 'cancel', 'default');

$node->stop;
done_testing();
