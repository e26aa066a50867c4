
# Deadlocks across servers are found and broken, whatever locks they are made of; and waits that are
# no deadlock are left alone.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = (
	'zklock.session_timeout' => '60s', 'zklock.linger' => 0, 'zklock.tenure' => 0,
	'deadlock_timeout' => '150ms', 'max_connections' => 600);
# One server comes into doubt below.
my %node = map { $_ => ZklockNode->started($_, $zk, %settings, $_ eq 'west' ? ('zklock.session_timeout' => '20s') : ()) } qw(north south west);
my ($north, $south, $west) = @node{qw(north south west)};
foreach my $node (values %node)
{
	$node->safe_psql('postgres', 'CREATE TABLE accounts AS SELECT generate_series(1, 9) AS id, 0 AS n');
	$node->safe_psql('postgres', 'CREATE DATABASE other');
}
my %backend = (
	(map { ("n$_" => $north->backend) } 1 .. 4),
	(map { ("s$_" => $south->backend) } 1 .. 4),
	(map { ("w$_" => $west->backend) } 1 .. 4));
my %watch = map { $_ => $node{$_}->backend } keys %node;
my $judge = $watch{west};

# While a deadlock is not proved, a server searches again and again, and each search lists queues.
sub wait_for_searches
{
	my ($node, $n) = @_;
	my $lists = $node->safe_psql('postgres', 'SELECT lists FROM zk_stat') + $n;
	return $node->wait_until("SELECT lists >= $lists FROM zk_stat");
}

# On a busy machine, a server may stand still for so long that it would refuse the commit.
sub commit
{
	my ($name) = @_;
	my ($server) = grep { substr($_, 0, 1) eq substr($name, 0, 1) } keys %watch;
	$watch{$server}->wait_until('SELECT safe FROM zk_sessions');
	return $backend{$name}->query('COMMIT');
}

# What backends do, in the order given; each waits only for its last statement.  Then one of the
# waiters gets 40P01, and all others go on when it has rolled back.  "NAME: SQL", and "NAME+ SQL"
# for a wait.
sub play
{
	my ($title, $victims, @steps) = @_;
	my (@waiting, %used, $many);
	foreach (@steps)
	{
		my ($name, $waits, $sql) = /^(\w+)([:+]) (.*)$/s or die $_;
		$backend{$name}->query('BEGIN') unless $used{$name}++;
		if ($waits eq ':')
		{
			$backend{$name}->query("SELECT $sql");
			next;
		}
		wait_until_waiting($waiting[-1], $many) if @waiting;
		$many = $sql =~ /multilock/;
		$backend{$name}->send($sql =~ /^(UPDATE|LOCK)/ ? $sql : "SELECT $sql");
		push @waiting, $name;
	}
	my $result = finish($title, \@waiting);
	is($result->{victims}, $victims, "$title: one victim");
	$backend{$_}->query('ROLLBACK') foreach keys %used;
	return $result;
}

# Until the backend waits for a lock of PostgreSQL's, or for its server's ticket.  A waiter for
# leases holds something, so its wait is published.  A multilock first requests all its tickets, and
# gives some of them back before it waits.  Its wait for a ticket begins after that, and so is
# certain only when it is published.
sub wait_until_waiting
{
	my ($name, $many) = @_;
	my $pid = $backend{$name}->pid;
	return $watch{ { n => 'north', s => 'south', w => 'west' }->{ substr($name, 0, 1) } }->wait_until($many
		? "SELECT EXISTS (SELECT FROM zk_waits JOIN pg_stat_activity USING (pid) WHERE pid = $pid AND waiting_since >= query_start)"
		: "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $pid AND NOT granted)"
		  . " OR (SELECT coalesce(bool_and(ticket IN ('queued', 'owned')), false) FROM zk_locks WHERE pid = $pid AND NOT granted)"
		  . " OR EXISTS (SELECT FROM zk_waits WHERE pid = $pid AND mode = 'lease')");
}

# All waits end: those of victims with 40P01 and a rollback.
sub finish
{
	my ($title, $waiting) = @_;
	my (@victims, @others, $err);
	my %left = map { $_ => 1 } @$waiting;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	while (%left)
	{
		my ($done) = grep { $backend{$_}->is_done } sort keys %left;
		if (!$done)
		{
			if (time > $deadline)
			{
				fail("$title: a deadlock is found");
				die 'timed out';
			}
			select(undef, undef, undef, 0.01);
			next;
		}
		delete $left{$done};
		my $result = $backend{$done}->result;
		if ($result->{errcode})
		{
			is($result->{errcode}, '40P01', "$title: the error of $done") or diag($result->{err});
			push @victims, $done;
			$err = $result->{err};
		}
		else
		{
			push @others, $done;
		}
		$result->{errcode} ? $backend{$done}->query('ROLLBACK') : commit($done);
		$backend{$done}->query('BEGIN');
	}
	return { victims => "@victims", others => "@others", err => $err };
}

sub mutex { my ($path, $timeout) = @_; return "zk_xact_lock_acquire('$path'" . ($timeout ? ", '$timeout')" : ')'); }
sub reading { my ($path) = @_; return "zk_xact_read_lock_acquire('$path')"; }
sub writing { my ($path) = @_; return "zk_xact_write_lock_acquire('$path')"; }
sub leases { my ($path, $n, $quantity) = @_; return "zk_xact_semaphore_acquire('$path', $n, NULL, " . ($quantity // 1) . ')'; }
sub row { my ($id) = @_; return "UPDATE accounts SET n = n + 1 WHERE id = $id"; }
sub lock_row { my ($id) = @_; return "id FROM accounts WHERE id = $id FOR UPDATE"; }

# --- two mutexes ---

my $log = -s $south->logfile;
my $result = play('two mutexes', 's1', 'n1: ' . mutex('/a'), 's1: ' . mutex('/b'), 'n1+ ' . mutex('/b'), 's1+ ' . mutex('/a'));
my ($pid_n, $pid_s) = map { $backend{$_}->pid } 'n1', 's1';
like($result->{err}, qr/ERROR:  40P01: deadlock detected\n/, 'the message is that of PostgreSQL');
like($result->{err}, qr/^DETAIL:  Process $pid_s on server "south" waits for lock "\/a"; blocked by process $pid_n on server "north"\.\nProcess $pid_n on server "north" waits for lock "\/b"; blocked by process $pid_s on server "south"\.\n/m,
	'with a line for each member');
like($result->{err}, qr/^HINT:  See server log for query details\.$/m, 'and the hint');
like(slurp_file($south->logfile, $log), qr/^\tProcess $pid_s: SELECT zk_xact_lock_acquire\('\/a'\)$/m, 'the log has the statement of its own server');
unlike(slurp_file($south->logfile, $log), qr/Process $pid_n: /, 'and none of another server');
$south->wait_until(q{SELECT deadlocks = 1 FROM pg_stat_database WHERE datname = 'postgres'});
pass('it counts as a deadlock');

# A role that may use only some paths learns nothing of the others.
$log = -s $south->logfile;
$backend{s1}->query(q{SET zklock.allowed_paths = '/a, /b'});
$result = play('a role that may use these paths', 's1', 'n1: ' . mutex('/a'), 's1: ' . mutex('/b'), 'n1+ ' . mutex('/b'), 's1+ ' . mutex('/a'));
$backend{s1}->query('RESET zklock.allowed_paths');
like($result->{err}, qr/^DETAIL:  The server log has the processes and the locks\.$/m, 'the detail is for the log alone');
unlike($result->{err}, qr/waits for lock/, 'and no lock is named');
like(slurp_file($south->logfile, $log), qr/DETAIL:  Process $pid_s on server "south" waits for lock "\/a"/, 'where it is');

# --- three servers ---

play('three mutexes on three servers', 'w1',
	(map { "${_}1: " . mutex("/$_") } qw(n s w)), 'n1+ ' . mutex('/s'), 's1+ ' . mutex('/w'), 'w1+ ' . mutex('/n'));

# --- read-write locks ---

play('read-write locks', 's1', 'n1: ' . writing('/rw/a'), 's1: ' . writing('/rw/b'), 'n1+ ' . reading('/rw/b'), 's1+ ' . reading('/rw/a'));
play('an upgrade of one through another', 's1', 'n1: ' . reading('/rw/a'), 'n1: ' . reading('/rw/b'), 's1: ' . reading('/rw/a'), 's1: ' . reading('/rw/c'),
	'n1+ ' . writing('/rw/c'), 's1+ ' . writing('/rw/b'));
like(play('a writer that holds nothing between two readers', 's1', 'n1: ' . reading('/rw/a'), 's1: ' . mutex('/b'), 'w1+ ' . writing('/rw/a'),
		'n1+ ' . mutex('/b'), 's1+ ' . reading('/rw/a'))->{err}, qr/waits for read lock "\/rw\/a"; blocked by process ${\ $backend{n1}->pid } on server "north"/,
	'the member that the detail leaves out');

# Names of znodes say which tickets only try, and stay when a try is granted.
play('a reader behind a writer that tried', 's1', q{n1: zk_xact_write_lock_acquire('/rw/tried', '0')}, 's1: ' . mutex('/b'), 'n1+ ' . mutex('/b'), 's1+ ' . reading('/rw/tried'));

# A try of s2's waits for the reply of north, and a writer of the same server waits behind it.
$_->query('BEGIN') foreach @backend{qw(n1 s1 s2 w1)};
$backend{n1}->query('SELECT ' . writing('/rw/left'));
kill 'STOP', my $silent = $north->worker_pid;
$backend{s2}->send(q{SELECT zk_xact_write_lock_acquire('/rw/left', '0')});
$watch{south}->wait_until(q{SELECT ticket = 'queued' FROM zk_locks WHERE path = '/rw/left'});
my $tried = $watch{south}->query(q{SELECT znode FROM zk_locks WHERE path = '/rw/left'});
$backend{s1}->send('SELECT ' . writing('/rw/left'));
wait_until_waiting('s1');
is($backend{s2}->answer, 'f', 'a try fails, behind which a writer waits');
kill 'CONT', $silent;
$watch{south}->wait_until(qq{SELECT count(*) = 1 FROM zk_locks WHERE path = '/rw/left' AND ticket = 'queued' AND znode <> '$tried'});
$backend{w1}->query('SELECT ' . mutex('/c'));
$backend{n1}->send('SELECT ' . mutex('/c'));
wait_until_waiting('n1');
$backend{w1}->send('SELECT ' . reading('/rw/left'));
is(finish('a reader behind a writer that waits', [qw(s1 n1 w1)])->{victims}, 'w1', 'a reader behind that writer: one victim');
$backend{$_}->query('ROLLBACK') foreach qw(n1 s1 s2 w1);

# After the tenure, a reader may not join its server's ticket, and waits for a reader there.
$_->query('BEGIN') foreach @backend{qw(n1 n2 s1 w1)};
$backend{n1}->query('SELECT ' . reading('/rw/t'));
$backend{n2}->query('SELECT ' . mutex('/a'));
$backend{s1}->query('SELECT ' . mutex('/b'));
$backend{w1}->send('SELECT ' . writing('/rw/t'));
$watch{north}->wait_until(q{SELECT contended FROM zk_locks WHERE path = '/rw/t'});
foreach ([ 'n2', reading('/rw/t') ], [ 'n1', mutex('/b') ], [ 's1', mutex('/a') ])
{
	$backend{ $_->[0] }->send("SELECT $_->[1]");
	wait_until_waiting($_->[0]) if $_->[0] ne 's1';
}
is(finish('a reader behind a reader of its server', [qw(n1 n2 s1 w1)])->{victims}, 's1', 'a reader behind a reader of its server: one victim');
$backend{$_}->query('ROLLBACK') foreach qw(n1 n2 s1 w1);

# --- several at once ---

play('multilocks', 's1', 'n1: ' . "zk_xact_multilock_acquire('{/m1, /m2}')", 's1: ' . "zk_xact_multilock_acquire('{/m3, /m4}')",
	'n1+ ' . "zk_xact_multilock_acquire('{/m5, /m4}')", 's1+ ' . "zk_xact_multilock_acquire('{/m0, /m1}')");
play('a multilock that has got a part', 's1', 'n1: ' . mutex('/m2'), 's1: ' . mutex('/m0'), 'n1+ ' . "zk_xact_multilock_acquire('{/m0, /m1}')",
	's1+ ' . "zk_xact_multilock_acquire('{/m1, /m2}')");

# --- semaphores ---

play('semaphores, n of n', 's1', 'n1: ' . leases('/sem/a', 2, 2), 's1: ' . leases('/sem/b', 3, 3), 'n1+ ' . leases('/sem/b', 3), 's1+ ' . leases('/sem/a', 2));
play('semaphores, and what is left does not suffice', 's1', 'n1: ' . leases('/sem/c', 3, 2), 's1: ' . mutex('/b'), 'n1+ ' . mutex('/b'), 's1+ ' . leases('/sem/c', 3, 2));
play('a waiter for two leases before a waiter for one', 's1', 'n1: ' . leases('/sem/d', 2), 's1: ' . mutex('/b'), 'n1+ ' . mutex('/b'),
	'w2: ' . mutex('/c'), 'w2+ ' . leases('/sem/d', 2, 2), 's1+ ' . leases('/sem/d', 2));

# A waiter for leases has the inner mutex, which counts only as long as other servers want it.
$_->query('BEGIN') foreach @backend{qw(n1 s1 w2)};
$backend{n1}->query('SELECT ' . leases('/sem/h', 2));
$backend{s1}->query('SELECT ' . mutex('/b'));
$backend{w2}->send('SELECT ' . leases('/sem/h', 2, 2));
sub wait_for_w2 { my ($time) = @_; return $watch{west}->wait_until("SELECT clock_timestamp() > query_start + interval '$time' FROM pg_stat_activity WHERE pid = " . $backend{w2}->pid); }
$zk->wait_until(sub { @{ $zk->children('/zklock/sem/h/leases') } == 3 }, 'w2 to wait for leases');
wait_for_w2('0.5 s');
my $before = $watch{west}->query('SELECT requests FROM zk_status');
wait_for_w2('1.5 s');
is($watch{west}->query('SELECT requests FROM zk_status'), $before, 'a waiter for leases that no other server waits for: no requests');
is($judge->query('SELECT count(*) FROM zk_waits'), 0, '... and its wait is not published');
$backend{n1}->send('SELECT ' . mutex('/b'));
wait_until_waiting('n1');
$backend{s1}->send('SELECT ' . leases('/sem/h', 2));
is(finish('a wanted inner mutex', [qw(w2 n1 s1)])->{victims}, 's1', '... until another server queues for the inner mutex');
$_->query('ROLLBACK') foreach @backend{qw(n1 s1 w2)};

play('two servers that have some leases and wait for more', 's1', 'n1: ' . leases('/sem/g', 3), 's1: ' . leases('/sem/g', 3), 'n1+ ' . leases('/sem/g', 3, 2), 's1+ ' . leases('/sem/g', 3, 2));

play('leases, all on one server', 'n1', 'n1: ' . leases('/sem/e', 2, 2), 'n2: ' . mutex('/a'), 'n1+ ' . mutex('/a'), 'n2+ ' . leases('/sem/e', 2));

# --- row locks ---

$result = play('a row on one server', 's1', 'n1: ' . mutex('/a'), 'n2: ' . lock_row(1), 's1: ' . mutex('/b'), 'n1+ ' . row(1), 'n2+ ' . mutex('/b'), 's1+ ' . mutex('/a'));
like($result->{err}, qr/blocked by process ${\ $backend{n1}->pid } on server "north"\.\nProcess ${\ $backend{n1}->pid } on server "north" waits for process ${\ $backend{n2}->pid } of that server\.\n/,
	'the detail says which backend waits for which there');
sub counted { return $watch{north}->query(q{SELECT l.deadlocks, s.deadlocks FROM zk_stat_locks AS l, zk_stat AS s WHERE path = '/a'}); }
my ($counted_a, $counted) = split /\|/, counted();
play('the holder waits for the row', 'n1', 'n1: ' . mutex('/a'), 'n2: ' . lock_row(1), 's1: ' . mutex('/b'), 's1+ ' . mutex('/a'), 'n1+ ' . row(1), 'n2+ ' . mutex('/b'));
is(counted(), join('|', $counted_a + 1, $counted + 1), 'it counts at the lock that it held');
play('a row on each server', 's1', 'n1: ' . mutex('/a'), 'n2: ' . lock_row(1), 's1: ' . mutex('/b'), 's2: ' . lock_row(2),
	'n1+ ' . row(1), 's1+ ' . row(2), 'n2+ ' . mutex('/b'), 's2+ ' . mutex('/a'));
play('a table', 's1', 'n1: ' . mutex('/a'), 'n2: ' . 'pg_advisory_xact_lock(42)', 's1: ' . mutex('/b'), 'n1+ ' . 'pg_advisory_xact_lock_shared(42)',
	'n2+ ' . mutex('/b'), 's1+ ' . mutex('/a'));

# --- exchanged places ---

# When PostgreSQL solves a deadlock by exchanging places in a queue, the backend that does so waits
# on; in older releases, without the time at which its wait began.  Here that is n2, and it holds a
# lock for which another server waits.
$north->safe_psql('postgres', 'CREATE TABLE one (); CREATE TABLE two ();');
sub lock_table { my ($name, $table, $mode) = @_; $backend{$name}->send("LOCK TABLE $table IN ACCESS $mode MODE"); return; }
$_->query('BEGIN') foreach @backend{qw(n1 n2 n3 n4 s1)};
$backend{$_}->query(q{SET LOCAL deadlock_timeout = '1h'}) foreach qw(n1 n3 n4);
$backend{s1}->query('SELECT ' . mutex('/b'));
$backend{n2}->query('SELECT ' . mutex('/a'));
$backend{n1}->query('LOCK TABLE one IN ACCESS SHARE MODE');
$backend{n2}->query('LOCK TABLE two IN ACCESS SHARE MODE');
foreach ([ 'n3', 'one', 'EXCLUSIVE' ], [ 'n4', 'two', 'EXCLUSIVE' ], [ 'n1', 'two', 'SHARE' ])
{
	lock_table(@$_);
	wait_until_waiting($_->[0]);
}
lock_table('n2', 'one', 'SHARE');
is($backend{n1}->answer, '', 'n1 goes before another backend');
is($watch{north}->query('SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = ' . $backend{n2}->pid), '1', 'n2 has made that possible, and waits on');
$backend{s1}->send('SELECT ' . mutex('/a'));
$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits});
$backend{n1}->query(q{SET LOCAL deadlock_timeout = '150ms'});
$backend{n1}->send('SELECT ' . mutex('/b'));
is($backend{n2}->result->{errcode}, '40P01', 'n2 is the victim of a deadlock across servers');
$backend{n2}->query('ROLLBACK');
is($backend{s1}->answer, 't', 'the others go on');
commit('s1');
is($backend{n1}->answer, 't', 'in turn');
commit('n1');
foreach (qw(n3 n4))
{
	$backend{$_}->answer;
	commit($_);
}

# --- local queues ---

play('a local waiter that holds nothing before one that does', 'n2', 's1: ' . mutex('/b'), 'n2: ' . mutex('/a'), 's1+ ' . mutex('/a'), 'n1+ ' . mutex('/b'), 'n2+ ' . mutex('/b'));
play('a place in a local queue', 'n3', 'n1: ' . reading('/rw/l'), 's1: ' . mutex('/b'), 'n3: ' . mutex('/a'), 's1+ ' . mutex('/a'), 'n1+ ' . mutex('/b'),
	'n2+ ' . writing('/rw/l'), 'n3+ ' . reading('/rw/l'));

# --- two databases ---

$north->safe_psql('other', 'CREATE EXTENSION zklock');
$backend{n5} = $north->backend(dbname => 'other');
play('a local and a remote part in two databases', 's1', 'n1: ' . mutex('/a'), 'n5: ' . mutex('/x'), 's1: ' . mutex('/b'), 'n1+ ' . mutex('/x'), 'n5+ ' . mutex('/b'), 's1+ ' . mutex('/a'));

# --- a server whose worker stands still ---

my ($first, $path) = ('/still/first', '/still/second');
my $worker = $west->worker_pid;

# The worker does not hear that the writer between two readers has gone.
$_->query('BEGIN') foreach @backend{qw(w1 s1 n1)};
$backend{w1}->query('SELECT ' . mutex($first));
$backend{s1}->query('SELECT ' . reading($path));
$backend{n1}->send('SELECT ' . writing($path));
wait_until_waiting('n1');
$backend{w1}->send('SELECT ' . reading($path));
$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits});
kill 'STOP', $worker;
$north->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $backend{n1}->pid . ')');
is($backend{n1}->result->{errcode}, '57014', 'a writer between two readers gives up');
$backend{n1}->query('ROLLBACK');
$zk->wait_for_children("/zklock$path", 2);
$backend{s1}->send('SELECT ' . mutex($first));
$watch{north}->wait_until(q{SELECT count(*) = 2 FROM zk_waits});
wait_for_searches($south, 3);
ok(!$backend{s1}->is_done, 'the worker of the second reader has not heard of it, and there is no victim');
kill 'CONT', $worker;
is($backend{w1}->answer, 't', 'then the reader goes on');
commit('w1');
is($backend{s1}->answer, 't', 'and the other one');
commit('s1');

# A wait is not confirmed while it is in doubt.
$_->query('BEGIN') foreach @backend{qw(w1 s1)};
$backend{w1}->query('SELECT ' . mutex($first));
$backend{s1}->query('SELECT ' . mutex($path));
$backend{w1}->send('SELECT ' . mutex($path));
$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits});
kill 'STOP', $worker;
$judge->wait_until('SELECT NOT safe FROM zk_sessions');
$backend{s1}->send('SELECT ' . mutex($first));
$watch{north}->wait_until(q{SELECT count(*) = 2 FROM zk_waits});
wait_for_searches($south, 3);
ok(!$backend{s1}->is_done, 'a deadlock stays while the server in which a member waits is in doubt');
kill 'CONT', $worker;
is($backend{s1}->result->{errcode}, '40P01', 'and is broken when the server is not in doubt any more');
$backend{s1}->query('ROLLBACK');
is($backend{w1}->answer, 't', 'the other one goes on');
commit('w1');

# --- a server that stands by for a leadership ---

# One of its backends waits for the same path.
$backend{s1}->query('BEGIN');
$backend{s1}->query('SELECT ' . mutex($path));
$west->set('zklock.leader_of', $path);
$judge->wait_until("SELECT count(*) = 1 FROM zk_locks WHERE path = '$path' AND ticket = 'queued'");
$judge->wait_until("SELECT state = 'idle' FROM zk_sessions");
$backend{w1}->query('BEGIN');
$backend{w1}->query('SELECT ' . mutex($first));
$backend{w1}->send('SELECT ' . mutex($path));
$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits});
$backend{s1}->send('SELECT ' . mutex($first));
is($backend{s1}->result->{errcode}, '40P01', 'a wait for a lock for which the server stands by is part of a deadlock');
$west->set('zklock.leader_of', '');
$backend{s1}->query('ROLLBACK');
is($backend{w1}->answer, 't', 'the other one goes on');
commit('w1');

# --- errors are those of any deadlock ---

$_->query('BEGIN') foreach @backend{qw(n1 s1)};
$backend{n1}->query('SELECT ' . mutex('/a'));
$backend{s1}->query('SELECT ' . mutex('/b'));
$backend{n1}->send('SELECT ' . mutex('/b'));
wait_until_waiting('n1');
my $caught = $backend{s1}->run(q{DO $$ BEGIN PERFORM zk_xact_lock_acquire('/c'); PERFORM zk_xact_lock_acquire('/a');
	EXCEPTION WHEN deadlock_detected THEN RAISE NOTICE 'caught'; END $$});
like($caught->{err}, qr/NOTICE:  00000: caught/, 'an exception block catches it');
is($backend{s1}->query(q{SELECT zk_lock_is_held('/b'), zk_lock_is_held('/c')}), 't|f', 'and keeps what was held before');
commit('s1');
is($backend{n1}->answer, 't', 'the other one waits for that');
commit('n1');

# --- what waits is shown ---

$_->query('BEGIN') foreach @backend{qw(n1 s1)};
$backend{n1}->query('SELECT ' . mutex('/held'));
$backend{s1}->query('SELECT ' . mutex('/wanted'));
$backend{n1}->send('SELECT ' . mutex('/wanted'));
$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits});
is($judge->query(q{SELECT path, mode, leases, server, pid, database, role, holds, held_by, waiting_since < now() FROM zk_waits}),
	join('|', '/wanted', 'lock', '', 'north', $backend{n1}->pid, 'postgres', $judge->query('SELECT current_user'), '{/held}', '{' . $backend{n1}->pid . '}', 't'),
	'zk_waits shows the wait on another server');
$judge->query(q{CREATE ROLE anyone});
$judge->query(q{SET ROLE anyone});
is($judge->query(q{SELECT path, server, waiting_since IS NULL, holds IS NULL, held_by IS NULL FROM zk_waits}), '/wanted|north|t|t|t', 'any role sees which backend waits for which path');
$judge->query(q{RESET ROLE});
like(join('', map { $zk->get("/zklock/.zklock/waits/$_")->{data} } @{ $zk->children('/zklock/.zklock/waits') }),
	qr/^zklock-waits=1 .*\nwait claim=\d+ pid=${\ $backend{n1}->pid } .* path=\/wanted server=north .*\nhold .* path=\/held\n$/, 'the znode says the same');
my @before = split /\|/, $watch{north}->query(q{SELECT checks, lists, reads, creates + writes + deletes FROM zk_stat});
$watch{north}->wait_until("SELECT lists >= $before[1] + 5 FROM zk_stat");
my @after = split /\|/, $watch{north}->query(q{SELECT checks, lists, reads, creates + writes + deletes FROM zk_stat});
my ($checks, $lists, $reads, $writes) = map { $after[$_] - $before[$_] } 0 .. 3;
ok($checks == 0 && abs($reads - 3 * $lists) <= 3 && $writes == 0, 'a search costs a sync, a list, and two reads for the owner, and writes nothing')
  or diag("$checks checks, $lists lists, $reads reads, $writes writes");
unlike(join('', map { $zk->get("/zklock/.zklock/waits/$_")->{data} } @{ $zk->children('/zklock/.zklock/waits') }), qr/SELECT/, 'and no statement');
commit('s1');
$backend{n1}->answer;
$zk->wait_for_children('/zklock/.zklock/waits', 0);
pass('a wait that has ended is withdrawn');
commit('n1');

foreach my $way ('cancelled', 'timed out', 'terminated')
{
	my $b = $north->backend;
	$b->query('BEGIN');
	$b->query('SELECT ' . mutex('/held'));
	$backend{s1}->query(q{SELECT zk_lock_acquire('/wanted')});
	$b->send('SELECT ' . mutex('/wanted', $way eq 'timed out' ? '5s' : undef));
	$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits});
	$north->safe_psql('postgres', 'SELECT pg_' . ($way eq 'cancelled' ? 'cancel' : 'terminate') . '_backend(' . $b->pid . ')') if $way ne 'timed out';
	$zk->wait_for_children('/zklock/.zklock/waits', 0);
	pass("so is one that was $way");
	$backend{s1}->query(q{SELECT zk_lock_release('/wanted')});
	$b->result;
	$b->quit if $way ne 'terminated';
}

# --- a member that does not answer ---

$_->query('BEGIN') foreach @backend{qw(n1 s1)};
$backend{n1}->query('SELECT ' . mutex('/a'));
$backend{s1}->query('SELECT ' . mutex('/b'));
$backend{n1}->send('SELECT ' . mutex('/b', '4s'));
$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits});
$worker = $north->worker_pid;
kill 'STOP', $worker;
$backend{s1}->send('SELECT ' . mutex('/a'));
$judge->wait_until(q{SELECT count(*) = 2 FROM zk_waits});
is($backend{n1}->answer, 'f', 'the wait times out while the worker of its server stands still');
ok(!$backend{s1}->is_done, 'the other one waits on, because nothing confirms the deadlock');
$backend{n1}->query('COMMIT');
kill 'CONT', $worker;
is($backend{s1}->answer, 't', 'and gets the lock: there was no victim');
commit('s1');

$_->query('BEGIN') foreach @backend{qw(n1 s1)};
$backend{n1}->query('SELECT ' . mutex('/a'));
$backend{s1}->query('SELECT ' . mutex('/b'));
$backend{n1}->send('SELECT ' . mutex('/b'));
$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits});
kill 'STOP', $worker;
$backend{s1}->send('SELECT ' . mutex('/a'));
$judge->wait_until(q{SELECT count(*) = 2 FROM zk_waits});
$judge->query(q{SELECT pg_sleep(0.5)});
ok(!$backend{s1}->is_done, 'a true deadlock stays while a member does not answer');
kill 'CONT', $worker;
is($backend{s1}->result->{errcode}, '40P01', 'and is broken when it does');
$backend{s1}->query('ROLLBACK');
is($backend{n1}->answer, 't', 'the other one goes on');
commit('n1');

# --- a search goes on until all members confirm ---

# What a server's record says of its search, when the server confirms its own part.
sub nonce_of
{
	my ($server) = @_;
	my $nonce;
	$zk->wait_until(
		sub {
			my ($text) = grep { /^zklock-waits=1 .* server=$server$/m } map { $zk->get("/zklock/.zklock/waits/$_")->{data} } @{ $zk->children('/zklock/.zklock/waits') };
			($nonce) = ($text // '') =~ /search=([1-9]\d*) confirms=\g1 /;
			return $nonce;
		},
		"$server to search");
	return $nonce;
}

# The leases that n1 has are in the way of its own wait, but they are not alone in that.
$_->query('BEGIN') foreach @backend{qw(n1 s1)};
$backend{n1}->query('SELECT ' . mutex('/a'));
$backend{n1}->query('SELECT ' . leases('/sem/f', 3));
$backend{s1}->query('SELECT ' . leases('/sem/f', 3, 2));
$backend{s1}->send('SELECT ' . mutex('/a'));
$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits});
$worker = $south->worker_pid;
kill 'STOP', $worker;
$backend{n1}->send('SELECT ' . leases('/sem/f', 3));
my $nonce = nonce_of('north');
$judge->query(q{SELECT pg_sleep(0.5)});
is(nonce_of('north'), $nonce, 'a search for which a part of the deadlock has yet to confirm goes on');
kill 'CONT', $worker;
$result = $backend{n1}->result;
is($result->{errcode}, '40P01', 'until all have');
like($result->{err}, qr/^DETAIL:  Process \d+ on server "north" waits for 1 lease of semaphore "\/sem\/f"; blocked by process \d+ on server "south"\.$/m,
	'the detail does not say that a backend waits for itself');
$backend{n1}->query('ROLLBACK');
is($backend{s1}->answer, 't', 'the other one goes on');
commit('s1');

# The record of w1 comes later than that of n1, although its wait is older.
$_->query('BEGIN') foreach @backend{qw(n1 s1 w1)};
$backend{n1}->query('SELECT ' . mutex($_)) foreach '/a', '/b';
$backend{$_}->query('SELECT ' . reading('/rw/a')) foreach 's1', 'w1';
$backend{s1}->send('SELECT ' . mutex('/a'));
$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits});
$backend{w1}->query(q{SET LOCAL deadlock_timeout = '2s'});
$backend{w1}->send('SELECT ' . mutex('/b'));
wait_until_waiting('w1');
kill 'STOP', $worker, $backend{w1}->pid;
$backend{n1}->send('SELECT ' . writing('/rw/a'));
nonce_of('north');
is($judge->query(q{SELECT count(*) FROM zk_waits}), 2, 'a deadlock stays while a member does not answer');
kill 'CONT', $backend{w1}->pid;
is($backend{n1}->result->{errcode}, '40P01', 'and is broken when another deadlock, without that member, is there');
$backend{n1}->query('ROLLBACK');
kill 'CONT', $worker;
foreach (qw(s1 w1))
{
	is($backend{$_}->answer, 't', "$_ goes on");
	commit($_);
}

# --- many deadlocks wait for one member ---

# All have victims on north, and are older than the deadlock of n1 and w1.
my @pairs = map { [ $north->backend, $south->backend ] } 1 .. 9;
foreach my $i (0 .. $#pairs)
{
	my ($n, $s) = @{ $pairs[$i] };
	$_->query('BEGIN') foreach $n, $s;
	$n->query('SELECT ' . mutex("/pair/n$i"));
	$s->query('SELECT ' . mutex("/pair/s$i"));
	$s->send('SELECT ' . mutex("/pair/n$i"));
}
$judge->wait_until(q{SELECT count(*) = 9 FROM zk_waits});
kill 'STOP', $worker;
$pairs[$_][0]->send('SELECT ' . mutex("/pair/s$_")) foreach 0 .. $#pairs;
$zk->wait_until(
	sub {
		my ($text) = grep { /^zklock-waits=1 .* server=north$/m } map { $zk->get("/zklock/.zklock/waits/$_")->{data} } @{ $zk->children('/zklock/.zklock/waits') };
		return 9 == (() = ($text // '') =~ /^wait .* search=[1-9]/mg);
	},
	'north to search for nine');
play('a deadlock beside nine others, which a server does not confirm', 'n1', 'n1: ' . mutex('/a'), 'w1: ' . mutex('/b'), 'w1+ ' . mutex('/a'), 'n1+ ' . mutex('/b'));
is(scalar(grep { $_->[0]->is_done || $_->[1]->is_done } @pairs), 0, 'these wait on');
kill 'CONT', $worker;
foreach (@pairs)
{
	is($_->[0]->result->{errcode}, '40P01', 'until it does');
	$_->[0]->query('ROLLBACK');
	is($_->[1]->answer, 't', 'and the other one goes on');
	$_->quit foreach @$_;
}

# --- more than can be published ---

my $long = '/bulk/' . 'x' x 200;
play('more locks than can be published', 'n1', "n1: zk_xact_multilock_acquire('{" . join(', ', map { "$long/$_" } 1 .. 600) . "}')", 's1: ' . mutex('/b'),
	's1+ ' . mutex("$long/300"), 'n1+ ' . mutex('/b'));

# --- another worker ---

$_->query('BEGIN') foreach @backend{qw(n1 s1)};
$backend{n1}->query('SELECT ' . mutex('/a'));
$backend{s1}->query('SELECT ' . mutex('/b'));
$backend{n1}->send('SELECT ' . mutex('/b'));
$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits});
$north->safe_psql('postgres', 'SELECT pg_terminate_backend(worker_pid) FROM zk_status');
$backend{s1}->send('SELECT ' . mutex('/a'));
is($backend{s1}->result->{errcode}, '40P01', 'the next worker carries the records on');
$backend{s1}->query('ROLLBACK');
is($backend{n1}->answer, 't', 'the other one goes on');
commit('n1');

# --- many waits ---

# As many clients of one server execute a pgbench script, and all wait for their locks.
sub many
{
	my ($clients, $sql) = @_;
	my $script = PostgreSQL::Test::Utils::tempdir() . '/many.sql';
	append_to_file($script, $sql);
	$backend{s1}->query("SELECT count(zk_lock_acquire('/many/' || n)) FROM generate_series(0, $clients - 1) AS n");
	my %many = (out => '', err => '');
	$many{run} = IPC::Run::start([ 'pgbench', '-n', '-c', $clients, '-j', '1', '-t', '1', '-f', $script, '-h', $north->host, '-p', $north->port, 'postgres' ],
		'>', \$many{out}, '2>', \$many{err});
	$watch{north}->wait_until("SELECT count(*) = $clients FROM zk_locks WHERE path LIKE '/many/%' AND ticket = 'queued'");
	return \%many;
}

sub end_many
{
	my ($clients, $many) = @_;
	$backend{s1}->query(q{SELECT zk_lock_release_all()});
	$many->{run}->finish;
	like($many->{out}, qr/number of transactions actually processed: $clients\/$clients/, "all $clients get their locks");
	return;
}

my $many = many(500, q{SELECT zk_lock_acquire('/many/' || :client_id);});
my $session = $north->status('session_id');
$zk->wait_until(
	sub {
		my ($watched) = $zk->cmd('wchc') =~ /^\Q$session\E\n((?:\t.*\n)*)/m;
		return 500 == (() = ($watched // '') =~ m{^\t/zklock/many/\d+/}mg);
	},
	'all tickets to watch the one before');
my $requests = $north->status('requests');
$judge->query(q{SELECT pg_sleep(0.5)});
is($north->status('requests'), $requests, '500 waits that hold nothing send nothing, for more than deadlock_timeout');
is($judge->query(q{SELECT count(*) FROM zk_waits}), '0', 'and are not published');
end_many(500, $many);

$log = -s $north->logfile;
$many = many(80, q{SELECT zk_lock_acquire('/mine/' || :client_id); SELECT zk_lock_acquire('/many/' || :client_id);});
$judge->wait_until(q{SELECT count(*) = 64 FROM zk_waits});
$north->wait_for_log(qr/too many waits to publish all of them/, $log);
pass('of 80 waits that hold something, 64 are published, which the log says');
end_many(80, $many);

# One of the waiters waits for another server, and 39 wait for that one, which is too many for a
# record.
$many = many(40, q{SELECT zk_lock_acquire('/mine/' || :client_id); SELECT zk_lock_acquire('/many/0');});
$judge->wait_until(q{SELECT count(*) = 1 FROM zk_waits WHERE cardinality(holds) = 32});
my $left_out = $judge->query(q{SELECT min(m.path) FROM (SELECT '/mine/' || n AS path FROM generate_series(0, 39) AS n) AS m, zk_waits AS w WHERE m.path <> ALL (w.holds)});
$backend{s1}->query('BEGIN');
is($backend{s1}->errcode('SELECT ' . mutex($left_out)), '40P01', 'a lock that was left out is published when another server wants it');
$backend{s1}->query('ROLLBACK');
end_many(40, $many);

# --- again and again ---

# A record is published deadlock_timeout after its wait began, at the earliest.  So three times
# deadlock_timeout after that is four times after the wait began.  The test checks this only if
# ROUNDS is set, on a machine that does nothing else: a slow one cannot keep to any time.
my $rounds = $ENV{ROUNDS} // 10;
my ($late, $false) = (0, 0);
foreach my $round (1 .. $rounds)
{
	my @names = $round % 2 ? qw(n1 s1) : qw(n1 s1 w1);
	foreach my $i (0 .. $#names)
	{
		$backend{ $names[$i] }->query('BEGIN');
		$backend{ $names[$i] }->query('SELECT ' . mutex("/again/$i"));
	}
	my $last = pop @names;
	foreach my $i (0 .. $#names)
	{
		$backend{ $names[$i] }->send('SELECT ' . mutex('/again/' . ($i + 1)));
		wait_until_waiting($names[$i]);
	}
	my $broken = $backend{$last}->run('SELECT ' . mutex('/again/0'));
	$false++ if $broken->{errcode} ne '40P01';
	$late++ if $broken->{seconds} > 4 * 0.15 + 0.1;
	note "$last: $broken->{seconds} s";
	$backend{$last}->query('ROLLBACK');
	foreach my $name (reverse @names)
	{
		$false++ if $backend{$name}->answer ne 't';
		commit($name);
	}
}
is($false, 0, "each of $rounds deadlocks has one victim, the youngest wait");
is($late, 0, 'within three times deadlock_timeout of its last record') if $ENV{ROUNDS};

# --- a server is lost ---

my ($wb) = $west->backend;
$_->query('BEGIN') foreach $backend{n1}, $wb;
$backend{n1}->query('SELECT ' . mutex('/a'));
$wb->query('SELECT ' . mutex('/b'));
my @sessions = split /\n/, $west->safe_psql('postgres', 'SELECT session_id FROM zk_sessions');
kill 'STOP', split /\n/, $west->safe_psql('postgres', 'SELECT worker_pid FROM zk_sessions');
$backend{n1}->send('SELECT ' . mutex('/b'));
wait_until_waiting('n1');
$wb->send('SELECT ' . mutex('/a'));
$west->kill9_all;
$zk->kill_session($_) foreach @sessions;
is($backend{n1}->answer, 't', 'a lost server ends the circle with its session');
commit('n1');

# --- switched off ---

$_->set('zklock.deadlock_detection', 'off') foreach $north, $south;
my ($n, $s) = ($north->backend, $south->backend);
$_->query('BEGIN') foreach $n, $s;
$n->query('SELECT ' . mutex('/a'));
$s->query('SELECT ' . mutex('/b'));
$n->send('SELECT ' . mutex('/b'));
$s->send('SELECT ' . mutex('/a', '1s'));
is($s->answer, 'f', 'without detection, the deadlock stays until a wait times out');
is_deeply($zk->children('/zklock/.zklock/waits'), [], 'and nothing is published');
$s->query('ROLLBACK');
is($n->answer, 't', 'then the other one goes on');

done_testing();
