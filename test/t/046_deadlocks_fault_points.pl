
# A process stops or fails at each step of the search for a deadlock, or the server is cut off
# there: a true deadlock has one victim in the end, and what is no deadlock any more has none.
# Needs servers with fault points (make FAULTS=1).

use strict;
use warnings;

use HoldingProxy;
use ZklockTest;

my $zk = ZooKeeper->new;
my $proxy = HoldingProxy->new($zk->hosts);
my %settings = ('zklock.session_timeout' => '20s', 'zklock.linger' => 0, 'deadlock_timeout' => '100ms');
my $north = ZklockNode->started('north', undef, %settings, 'zklock.hosts' => $proxy->address, 'restart_after_crash' => 'on', 'wal_level' => 'replica', 'max_wal_senders' => 1);
my $south = ZklockNode->started('south', $zk, %settings);
$north->safe_psql('postgres', 'CREATE TABLE accounts AS SELECT 1 AS id, 0 AS n');
my ($n1, $n2, $s1) = ($north->backend, $north->backend, $south->backend);
my $judge = $south->backend;

sub mutex { my ($path) = @_; return "SELECT zk_xact_lock_acquire('$path')"; }
# The wait of n1 is the younger one, so the victim is on north.
sub circle
{
	my ($point, $action) = @_;
	$_->query('BEGIN') foreach $n1, $s1;
	$n1->query(mutex('/a'));
	$s1->query(mutex('/b'));
	$s1->send(mutex('/a'));
	$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits WHERE server = 'south'});
	$north->arm($point, $action);
	$n1->send(mutex('/b'));
	return $north->at_point($point);
}

# Both waits end, one of them as the victim.
sub is_broken
{
	my ($what) = @_;
	my @results = map { $_->result } $n1, $s1;
	is(join(' ', sort map { $_->{errcode} || $_->{out} } @results), '40P01 t', "$what: one wait is the victim, and the other one goes on");
	$_->query('ROLLBACK') foreach $n1, $s1;
	$zk->wait_for_children('/zklock/.zklock/waits', 0);
	return;
}

my @points = map { s/^zklock\.fault\.//r } qw(
	zklock.fault.waits-sent
	zklock.fault.waits-acknowledged
	zklock.fault.search-begun
	zklock.fault.search-answered
	zklock.fault.search-complete
	zklock.fault.case-begun
	zklock.fault.deadlock-proved);
my @points_of_backends = map { s/^zklock\.fault\.//r } qw(
	zklock.fault.wait-published
	zklock.fault.wait-sentenced);

foreach my $point (@points, @points_of_backends)
{
	my $process = circle($point, 'stop');
	ok(!$n1->is_done && !$s1->is_done, "$point, stop: both wait on");
	kill 'CONT', $process;
	is_broken("$point, stop");
}

# The worker starts again a second later.
foreach my $point (qw(waits-acknowledged search-answered case-begun deadlock-proved))
{
	circle($point, 'fail');
	is_broken("$point, fail");
}

foreach my $point (@points_of_backends)
{
	circle($point, 'fail');
	is($n1->result->{errcode}, 'XX000', "$point, fail: that ends the wait");
	$n1->query('ROLLBACK');
	is($s1->answer, 't', "$point, fail: and the other one goes on");
	$s1->query('COMMIT');
	$zk->wait_for_children('/zklock/.zklock/waits', 0);
}

# The connection is lost in the middle, with all replies.
foreach my $point (qw(waits-sent search-begun search-answered case-begun))
{
	my $process = circle($point, 'stop');
	$proxy->hold('replies');
	kill 'CONT', $process;
	$judge->query(q{SELECT pg_sleep(0.2)});
	ok(!$n1->is_done && !$s1->is_done, "$point, cut off: there is no victim meanwhile");
	$proxy->cut;
	is_broken("$point, cut off");
}

# The server that must confirm stands still, and the other wait ends: there is no victim.
my $worker = circle('case-begun', 'stop');
$south->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $s1->pid . ')');
is($s1->result->{errcode}, '57014', 'the wait of the other server is cancelled');
$s1->query('ROLLBACK');
kill 'CONT', $worker;
is($n1->answer, 't', 'so there is no victim');
$n1->query('COMMIT');

# The same when the deadlock is proved, but so long ago that the proof is good no more.
$worker = circle('deadlock-proved', 'stop');
$south->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $s1->pid . ')');
is($s1->result->{errcode}, '57014', 'the wait of the other server is cancelled after the proof');
$s1->query('ROLLBACK');
$judge->query('SELECT pg_sleep(6)');
kill 'CONT', $worker;
is($n1->answer, 't', 'there is no victim, either');
$n1->query('COMMIT');

# The wait of the victim is over before the victim sees the sentence.
my $victim = circle('wait-sentenced', 'stop');
$south->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $s1->pid . ')');
is($s1->result->{errcode}, '57014', 'the wait of the other server is cancelled after the sentence');
$s1->query('ROLLBACK');
$north->wait_for_ticket('/b', 'owned');
kill 'CONT', $victim;
is($n1->answer, 't', 'a wait that is over is no victim');
$n1->query('COMMIT');

# The holder's local wait ends just before it would be cancelled: its next statement is not
# cancelled.
my $at = -s $north->logfile;
$_->query('BEGIN') foreach $n1, $n2, $s1;
$n1->query(mutex('/a'));
$n1->query('SAVEPOINT before');
$n2->query('SELECT n FROM accounts WHERE id = 1 FOR UPDATE');
$s1->query(mutex('/b'));
$s1->send(mutex('/a'));
$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits WHERE server = 'south'});
$n1->send('UPDATE accounts SET n = n + 1');
$north->wait_until('SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid = ' . $n1->pid . ')');
$north->arm('wait-sentenced');
$n2->send(mutex('/b'));
my $process = $north->at_point('wait-sentenced');
is($process, $n2->pid, 'the backend that waits for the ticket is to cancel the holder');
$north->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $n1->pid . ')');
is($n1->result->{errcode}, '57014', "the holder's wait is cancelled by hand");
$n1->query('ROLLBACK TO before');
$n1->send('SELECT 1 FROM pg_sleep(0.5)');
kill 'CONT', $process;
is($n1->answer, '1', 'its next statement is left alone');
$n1->query('COMMIT');
is($s1->answer, 't', 'and all go on');
$s1->query('COMMIT');
is($n2->answer, 't', 'one after the other');
$n2->query('COMMIT');

# --- the backend that is cancelled ---

my ($holder_found, $locks_copied) = ('holder-found', 'locks-copied');

# The end of a circle: n2 waits for a ticket, and is to cancel $holder, which waits for n2.  Leaves
# n2 at the point.
sub circle_around
{
	my ($holder, $sql, $point) = @_;
	$s1->query('BEGIN');
	$s1->query(mutex('/b'));
	$s1->send(mutex('/a'));
	$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits WHERE server = 'south'});
	$holder->send($sql);
	$north->wait_until('SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND ' . $holder->pid . ' IN (pid, leader_pid))');
	$north->arm($point) if $point;
	$n2->send(mutex('/b'));
	return $point ? $north->at_point($point) : undef;
}

# The holder stands still while it loses the lock on the path and becomes the victim, so it learns of both at once.
sub loss_in_a_circle
{
	my ($holder, $path) = @_;
	$_->query('BEGIN') foreach $n2, $holder;
	$holder->query(mutex('/a'));
	$n2->query('LOCK TABLE accounts');
	my $found = circle_around($holder, 'SELECT n FROM accounts', $holder_found);
	kill 'STOP', $holder->pid;
	$zk->delete("/zklock$path/" . $zk->children("/zklock$path")->[0]);
	$north->wait_until("SELECT claim = 'lost' FROM zk_locks WHERE path = '$path'");
	kill 'CONT', $found;
	$north->wait_for_ticket('/b', 'queued');
	$judge->query('SELECT pg_sleep(0.3)');
	kill 'CONT', $holder->pid;
	return $holder->result->{errcode};
}

sub end_of_circle
{
	my ($holder) = @_;
	$holder->query('ROLLBACK');
	is($s1->answer, 't', 'and all go on');
	$s1->query('COMMIT');
	is($n2->answer, 't', 'one after the other');
	$n2->query('COMMIT');
	return;
}

# The notice comes after the wait is over; in the end also to a backend that lost a lock long ago.
foreach my $next ('idle', 'busy', 'idle after a loss', 'busy after a loss')
{
	if ($next eq 'idle after a loss')
	{
		$n1->query(q{SELECT zk_lock_acquire('/lost', lease_time => '100ms')});
		$north->wait_until(q{SELECT claim = 'lost' FROM zk_locks WHERE path = '/lost'});
	}
	$_->query('BEGIN') foreach $n1, $n2;
	$n1->query(mutex('/a'));
	$n1->query('SAVEPOINT before');
	$n2->query('SELECT n FROM accounts WHERE id = 1 FOR UPDATE');
	my $process = circle_around($n1, 'UPDATE accounts SET n = n + 1', $holder_found);
	$north->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $n1->pid . ')');
	is($n1->result->{errcode}, '57014', 'the wait of the holder is cancelled by hand');
	$n1->query('ROLLBACK TO before');
	$n1->send('SELECT 1 FROM pg_sleep(0.5)') if $next =~ /busy/;
	kill 'CONT', $process;
	$judge->query('SELECT pg_sleep(0.3)');
	is($next =~ /busy/ ? $n1->answer : $n1->query('SELECT 1'), '1', "a notice that comes late does nothing to a session that is $next");
	end_of_circle($n1);
}
$n1->run(q{SELECT zk_lock_release('/lost')});

# A parallel worker of the holder waits.
$north->safe_psql('postgres', q{CREATE FUNCTION sum_of_accounts() RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RETURN (SELECT sum(n) FROM accounts); END'});
my $parallel = $n1->query(q{SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
foreach my $next ('', 'SELECT 1 FROM pg_sleep(0.5)')
{
	$_->query('BEGIN') foreach $n1, $n2;
	$n1->query("SET LOCAL $parallel = on");
	$n1->query(mutex('/a'));
	$n1->query('SAVEPOINT before');
	$n2->query('LOCK TABLE accounts');
	my $process = circle_around($n1, 'SELECT sum_of_accounts()', $next && $holder_found);
	if ($next)
	{
		$north->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $n1->pid . ')');
		is($n1->result->{errcode}, '57014', 'the statement is cancelled by hand');
		$n1->query('ROLLBACK TO before');
		$n1->send($next);
		kill 'CONT', $process;
		is($n1->answer, '1', 'a notice that comes late does nothing to the next statement');
	}
	else
	{
		my $result = $n1->result;
		is($result->{errcode}, '40P01', 'a deadlock through a parallel worker is broken');
		like($result->{err}, qr/^Process ${\ $n1->pid } on server "north" waits for process ${\ $n2->pid } of that server\.$/m, 'the detail names its leader');
	}
	end_of_circle($n1);
}

# The wait is in the parser, where no hook of the executor sees the error.
$_->query('BEGIN') foreach $n1, $n2;
$n1->query(q{SET LOCAL log_min_messages = 'fatal'});
$n1->query(mutex('/a'));
$n2->query('LOCK TABLE accounts');
circle_around($n1, 'SELECT n FROM accounts');
my $result = $n1->result;
is($result->{errcode}, '40P01', 'a statement that is cancelled in the parser gets the error of a deadlock, also if errors are not logged');
like($result->{err}, qr/^DETAIL:  Process \d+ on server "north" waits for lock "\/b"/m, 'with its detail');
end_of_circle($n1);

# The same after an error that has ended a transaction.
$n1->query(q{SET log_min_messages = 'fatal'});
is($n1->errcode('SELECT 1/0'), '22012', 'an error');
$n1->query(q{SELECT zk_lock_acquire('/a')});
is($n1->errcode('SELECT 1/0'), '22012', 'and another one');
$n2->query('BEGIN');
$n2->query('LOCK TABLE accounts');
circle_around($n1, 'SELECT n FROM accounts');
is($n1->result->{errcode}, '40P01', 'do not make the session forget that');
$n1->query(q{SELECT zk_lock_release('/a')});
$n1->query('RESET log_min_messages');
end_of_circle($n1);

# And after an error that has ended a savepoint.
$_->query('BEGIN') foreach $n1, $n2;
$n1->query(q{SET LOCAL log_min_messages = 'fatal'});
$n1->query(mutex('/a'));
$n1->query('SAVEPOINT before');
is($n1->errcode('SELECT 1/0'), '22012', 'an error in a savepoint');
$n1->query('ROLLBACK TO before');
$n2->query('LOCK TABLE accounts');
circle_around($n1, 'SELECT n FROM accounts');
is($n1->result->{errcode}, '40P01', 'does not make it forget that, either');
end_of_circle($n1);

# The wait is at the end of a transaction, when the backend has no statement any more.
$north->safe_psql('postgres', 'CREATE TABLE late (id integer UNIQUE DEFERRABLE INITIALLY DEFERRED)');
my $script = PostgreSQL::Test::Utils::tempdir() . '/late.sql';
append_to_file($script, "SELECT zk_lock_acquire('/a');\nINSERT INTO late VALUES (1);\n");
$n2->query('BEGIN');
$n2->query('INSERT INTO late VALUES (1)');
my %late = (out => '', err => '');
$late{run} = IPC::Run::start([ 'pgbench', '-n', '--failures-detailed', '-M', 'extended', '-t', '1', '-f', $script, '-h', $north->host, '-p', $north->port, 'postgres' ],
	'>', \$late{out}, '2>', \$late{err}, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
$north->wait_until(q{SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)});
$s1->query('BEGIN');
$s1->query(mutex('/b'));
$s1->send(mutex('/a'));
$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits WHERE server = 'south'});
$n2->send(mutex('/b'));
$late{run}->finish;
like($late{out}, qr/^number of deadlock failures: 1 /m, 'a holder that waits at the end of its transaction is cancelled');
end_of_circle($n1);

# A walsender is told of losses and deadlocks by SIGINT, whatever it does at that moment.
my $sender = $north->backend(replication => 'database');
$_->query('BEGIN') foreach $n2, $sender;
$sender->query(mutex('/a'));
$n2->query('LOCK TABLE accounts');
circle_around($sender, 'SELECT n FROM accounts');
is($sender->result->{errcode}, '40P01', 'a walsender is cancelled, too');
end_of_circle($sender);
$_->query('BEGIN') foreach $n2, $sender;
$sender->query(mutex('/a'));
$sender->query('SAVEPOINT before');
$n2->query('LOCK TABLE accounts');
my $found = circle_around($sender, 'SELECT n FROM accounts', $holder_found);
$north->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $sender->pid . ')');
is($sender->result->{errcode}, '57014', 'its wait is cancelled by hand');
$sender->query('ROLLBACK TO before');
kill 'CONT', $found;
$judge->query('SELECT pg_sleep(0.3)');
end_of_circle($sender);
$sender->send('SELECT pg_sleep(60)');
$north->wait_until(q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep')});
$north->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $sender->pid . ')');
is($sender->result->{errcode}, '57014', 'a cancel after a notice that came late is no deadlock');

# It learns of a loss together with the deadlock.  What it loses while idle cancels nothing, and explains no message.
$sender->query(q{SELECT zk_lock_acquire('/lost')});
is(loss_in_a_circle($sender, '/lost'), '40P01', 'a loss and a deadlock at once: the deadlock is the error');
end_of_circle($sender);
like($sender->run(q{DO $$ BEGIN RAISE NOTICE 'mine' USING ERRCODE = '57014'; END $$})->{err}, qr/NOTICE:  57014: mine/, 'a message with the SQLSTATE of a cancel is none');
$n1->query(q{SELECT zk_lock_acquire('/a')});
is($sender->run(q{SELECT zk_lock_acquire('/a', '200ms')})->{out}, 'f', 'nor is the end of a wait');
like($sender->run(q{DO $$ BEGIN RAISE 'mine' USING ERRCODE = '57014'; END $$})->{err}, qr/ERROR:  57014: mine/, 'nor an error of its own');
$sender->query(q{SET statement_timeout = '50ms'});
like($sender->run('SELECT pg_sleep(60)')->{err}, qr/ERROR:  57014: canceling statement due to statement timeout/, 'nor a timeout');
$n1->query(q{SELECT zk_lock_release('/a')});
$sender->quit;

# Any other session learns of both by one signal, and may have to end.
my $strict = $north->backend;
$strict->query('SET zklock.on_lost = terminate');
$strict->query(q{SELECT zk_lock_acquire('/strict')});
is(loss_in_a_circle($strict, '/strict'), 'ZK001', 'a loss and a deadlock at once end the connection, if zklock.on_lost says so');
is($s1->answer, 't', 'and all go on');
$s1->query('COMMIT');
is($n2->answer, 't', 'one after the other');
$n2->query('COMMIT');

# --- the log message reads the queue ---

# The lock is handed over while the backend reads the queue for log_lock_waits, because another
# client stands between.  The backend stands still, and so finds both wake-ups at once.
$north->set('zklock.deadlock_detection', 'off');
my $logging = $north->backend;
$logging->query(q{SET log_lock_waits = on; SET deadlock_timeout = '1s'});
$s1->query('BEGIN');
$s1->query(mutex('/logged'));
my $between = $zk->create('/zklock/logged/_c_00000000-0000-4000-8000-000000000000-lock-', ephemeral => 1, sequence => 1);
$logging->send(mutex('/logged'));
$north->wait_for_ticket('/logged', 'queued');
$proxy->hold('replies');
$judge->query('SELECT pg_sleep(1.4)');
kill 'STOP', $logging->pid;
$s1->query('COMMIT');
$zk->delete($between);
$proxy->pass;
$north->wait_for_ticket('/logged', 'owned');
$at = -s $north->logfile;
kill 'CONT', $logging->pid;
is($logging->answer, 't', 'a wait that is being logged ends');
my ($after) = slurp_file($north->logfile, $at) =~ /process ${\ $logging->pid } acquired ExclusiveLock on lock "\/logged" in ZooKeeper after (\d+)/;
cmp_ok($after, '<', 6000, 'when the lock is handed over');
$logging->quit;
$north->set('zklock.deadlock_detection', 'on');

# --- what it costs to look ---

# n1 waits for another server, n2 for another backend's table lock.  No backend waits for n1.
my $other = $north->backend;
$_->query('BEGIN') foreach $n1, $n2, $other, $s1;
$n1->query(mutex('/a'));
$s1->query(mutex('/b'));
$other->query('LOCK TABLE accounts');
$n2->send('SELECT n FROM accounts');
$north->arm($locks_copied, 'fail');
$n1->send(mutex('/b'));
$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits WHERE server = 'north'});
ok(-l $north->data_dir . "/zklock.fault.$locks_copied", 'a backend for whose locks no backend waits does not copy the lock table');
unlink $north->data_dir . "/zklock.fault.$locks_copied";
$other->query('COMMIT');
$n2->answer;

# Now n2 waits for n1, and nothing else happens.
$n2->query('COMMIT');
$n2->send(mutex('/a'));
sub switches { my ($pid) = @_; my ($n) = slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m; return $n; }
# How soon it has found the circle several times depends on the machine.
ok($zk->wait_until(sub {
		my $switches = switches($n1->pid);
		$judge->query('SELECT pg_sleep(1.6)');
		return switches($n1->pid) - $switches <= 4; }, 'the backend to look less often'),
	'a backend that has found the same circle several times looks less often');
$s1->query('COMMIT');
is($n1->answer, 't', 'the wait ends');
$n1->query('COMMIT');
is($n2->answer, 't', 'and the one behind it');
$other->quit;

# A server that crashes with a published wait leaves nothing behind.
circle('search-complete', 'die');
is($s1->answer, 't', 'a crash ends the circle');
$s1->query('COMMIT');
$zk->wait_for_children('/zklock/.zklock/waits', 0);
pass('and nothing is left');

done_testing();
