# However a backend or a server ends, its locks are free.

use strict;
use warnings;

use Time::HiRes qw(time);

use ZklockTest;

my $zk = ZooKeeper->new;

# A release that comes much earlier than this did not have to wait for the session's expiry.
my $long = 40;
my $soon = 20;

my @settings = (
	'zklock.session_timeout' => "${long}s",
	'zklock.linger' => 0,
	'restart_after_crash' => 'on',
	'client_connection_check_interval' => '50ms');
my $node_a = ZklockNode->started('a', $zk, @settings);
my $node_b = ZklockNode->started('b', $zk, @settings);

my @waiters = map { $node_b->backend } 1, 2;
my $near = $node_a->backend;
my $judge = $node_b->backend;

# A backend of a that holds a session-level lock and a transaction-level lock.
sub holder
{
	my ($path) = @_;
	my $holder = $node_a->backend;
	$holder->query("SELECT zk_lock_acquire('$path/session')");
	$holder->query("BEGIN; SELECT zk_xact_lock_acquire('$path/xact'), zk_xact_lock_acquire('$path/session')");
	return $holder;
}

# The other server wants both locks.
sub wait_for_both
{
	my ($path) = @_;
	$waiters[0]->send("SELECT zk_lock_acquire('$path/session')");
	$waiters[1]->send("SELECT zk_lock_acquire('$path/xact')");
	$judge->wait_until("SELECT count(*) = 2 FROM zk_locks WHERE path LIKE '$path/%' AND ticket = 'queued'");
	return;
}

sub are_served
{
	my ($path, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($waiters[0]->answer, 't', "$what: the session-level lock is free");
	is($waiters[1]->answer, 't', "$what: the lock of transaction scope is free");
	foreach my $waiter (@waiters)
	{
		$waiter->query('SELECT zk_lock_release_all()');
	}
	$zk->wait_for_children("/zklock$path/$_", 0) foreach 'session', 'xact';
	return;
}

# --- a backend ends -----------------------------------------------------------------

my $backend_is = sub {
	my ($holder, $state) = @_;
	$near->wait_until("SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = "
		. $holder->pid . " AND state = '$state'");
};

my %ways = (
	'exit' => sub { $_[0]->quit },
	'exit of a failed transaction' => sub { $_[0]->run('SELECT 1/0'); $_[0]->quit },
	'idle_in_transaction_session_timeout' => sub {
		$_[0]->query("SET idle_in_transaction_session_timeout = '100ms'");
	},
	'idle_session_timeout, after COMMIT' => sub {
		$_[0]->query("SET idle_session_timeout = '100ms'");
		$_[0]->query('COMMIT');
	},
	'pg_terminate_backend while idle' => sub {
		$near->query('SELECT pg_terminate_backend(' . $_[0]->pid . ')');
	},
	'pg_terminate_backend while active' => sub {
		$_[0]->send('SELECT pg_sleep(3600)');
		$backend_is->($_[0], 'active');
		$near->query('SELECT pg_terminate_backend(' . $_[0]->pid . ')');
	},
	'pg_terminate_backend of itself' => sub {
		$_[0]->run('SELECT pg_terminate_backend(pg_backend_pid())');
	},
	'pg_terminate_backend in a function that catches errors' => sub {
		$_[0]->send('DO $$ BEGIN LOOP BEGIN PERFORM zk_lock_acquire(%s), pg_sleep(0.01); EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END $$'
			  =~ s/%s/'\/function'/r);
		$backend_is->($_[0], 'active');
		$near->query('SELECT pg_terminate_backend(' . $_[0]->pid . ')');
	},
	'client gone while idle' => sub { $_[0]->kill_client },
	'client gone while active' => sub {
		$_[0]->send('SELECT pg_sleep(3600)');
		$backend_is->($_[0], 'active');
		$_[0]->kill_client;
	},
	'DISCARD ALL and the next pooled client' => sub {
		$_[0]->query('ROLLBACK');
		$_[0]->query('DISCARD ALL');
	});

foreach my $way (sort keys %ways)
{
	my $holder = holder('/backend');
	wait_for_both('/backend');
	$ways{$way}->($holder);
	are_served('/backend', $way);
	$node_a->wait_until_clean('/backend/session');
}
$node_a->wait_until('SELECT count(*) = 0 FROM zk_locks');
pass('no lock is left');

# --- kill -9 of a backend: all others end, too, and the server restarts -----------------

my $session = $node_a->status('session_id');
my $log_at = -s $node_a->logfile;

my $holder = holder('/crash');
wait_for_both('/crash');
my $killed_at = time;
kill 'KILL', $holder->pid;
are_served('/crash', 'kill -9 of a backend');
cmp_ok(time - $killed_at, '<', $soon, 'kill -9 of a backend: long before the session would expire');
$node_a->wait_until_connected;
isnt($node_a->status('session_id'), $session, 'kill -9 of a backend: there is a new session');
ok($node_a->log_contains('closed the ZooKeeper session that an earlier run of this server left behind', $log_at),
	'kill -9 of a backend: the old one was closed');
$near = $node_a->backend;
is($near->query(try('/crash/session')), 't', 'kill -9 of a backend: the server locks again');
is($waiters[0]->query(try('/crash/session')), 'f', 'and excludes others');
$near->query(release('/crash/session'));

# Crash after crash, at any moment of the new worker's life.
$holder = holder('/crashes');
wait_for_both('/crashes');
$killed_at = time;
my $victim = $node_a->worker_pid;
foreach my $round (1 .. 4)
{
	kill 'KILL', $victim;

	# The next worker is killed as soon as there is one; the last one lives.
	my $old = $victim;
	last if $round == 4;
	$zk->wait_until(
		sub {
			my %children = $node_a->children;
			($victim) = grep { $_ ne $old && $children{$_} =~ /zklock worker/ } keys %children;
			return $victim;
		},
		'the next worker',
		60);
}
are_served('/crashes', 'crash after crash');
cmp_ok(time - $killed_at, '<', $soon, 'crash after crash: long before the session would expire');
$node_a->wait_until_connected;

# --- the whole server ---------------------------------------------------------------------

my %ends = (
	'kill -9' => sub { $node_a->kill9_all },
	'immediate shutdown' => sub { $node_a->stop('immediate') });
foreach my $end (sort keys %ends)
{
	my $what = "$end and start";
	$log_at = -s $node_a->logfile;
	$holder = holder('/server');
	wait_for_both('/server');
	$killed_at = time;
	$ends{$end}->();
	ok(!$waiters[0]->is_done, "$what: while it is down, its locks are held");
	$node_a->start;
	are_served('/server', $what);
	cmp_ok(time - $killed_at, '<', $soon, "$what: long before the session would expire");
	$node_a->wait_until_connected;
	ok($node_a->log_contains('closed the ZooKeeper session that an earlier run of this server left behind', $log_at),
		"$what: the old session was closed");
}

# If the server does not come back, the session expires.
$node_a->configure('zklock.session_timeout' => '6s');
$node_a->restart;
foreach my $end (sort keys %ends)
{
	$node_a->wait_until_connected;
	$holder = holder('/gone');
	wait_for_both('/gone');
	$ends{$end}->();
	are_served('/gone', "$end, for good");
	$log_at = -s $node_a->logfile;
	$node_a->start;
	$node_a->wait_until_connected;
	ok(!$node_a->log_contains('closed the ZooKeeper session that an earlier run', $log_at),
		"$end, for good: at the next start, there is no old session to close");
}

is_deeply([ grep { /-lock-/ } @{ $zk->tree('/zklock') } ], [], 'no znode is left');
$node_b->wait_until('SELECT count(*) = 0 FROM zk_locks');
pass('and no claim');

$_->stop foreach $node_a, $node_b;
done_testing();
