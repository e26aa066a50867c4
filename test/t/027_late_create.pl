
# Creates whose connection was lost, and which ZooKeeper carries out after the tickets were told
# that there is no znode: as when a partition has held up a ZooKeeper server that the client has
# left.  The proxy plays that server.

use strict;
use warnings;

use IPC::Run;

use HoldingProxy;
use ZklockTest;

my $zk = ZooKeeper->new;
my $proxy = HoldingProxy->new($zk->hosts);
# ZooKeeper closes a connection of which it has heard nothing for this long.  Then what is kept is not created at all.
my $node = ZklockNode->started('a', undef, 'zklock.hosts' => $proxy->address,
	'zklock.session_timeout' => '60s', 'zklock.linger' => 0, 'max_connections' => 100);
my ($patient, $impatient, $counting, $watcher) = map { $node->backend } 1 .. 4;
my $other = ZklockNode->started('b', $zk);

sub znodes { my ($path) = @_; return grep { /[-_]\d{10}$/ } @{ $zk->children("/zklock$path") // [] }; }

# Nothing is held or under way, not even what the worker asks after a lost connection: the next
# requests are the first to be held up.
sub wait_until_idle
{
	$node->wait_until('SELECT count(*) = 0 FROM zk_locks');
	$node->wait_until('SELECT entries = 0 FROM zk_status');
	return;
}

# All creates are under way, and only the patient backend still wants its lock.
sub lose_creates
{
	my ($run) = @_;
	$proxy->hold('requests');
	my $before = $watcher->query('SELECT tickets FROM zk_status');
	# All are sent at once.  One after the other, the third would wait for one of the others.
	my $worker = $node->worker_pid;
	kill 'STOP', $worker;
	$patient->send("SELECT zk_lock_acquire('/wanted$run')");
	$impatient->send("SELECT zk_lock_acquire('/unwanted$run')");
	$counting->send("SELECT zk_semaphore_acquire('/sem$run', 2)");
	$node->wait_until('SELECT count(DISTINCT pid) = 3 FROM zk_locks');
	kill 'CONT', $worker;
	$node->wait_until("SELECT tickets = $before + 3 FROM zk_status");
	$watcher->query('SELECT pg_cancel_backend(' . $_->pid . ')') foreach $impatient, $counting;
	is($_->result->{errcode}, '57014', "$run: withdrawn while the create is under way") foreach $impatient, $counting;
	$proxy->keep;
	is($patient->result->{out}, 't', "$run: the one that still waits has the lock by a second create");
	$node->wait_until(q{SELECT count(*) = 1 FROM zk_locks});
	is_deeply([ znodes("/unwanted$run") ], [], "$run: there is no znode");
	return;
}

# Make the directories: a create in a missing directory could not be carried out late.
foreach my $run (qw(1 2 idle))
{
	$watcher->query("SELECT zk_lock_acquire('$_'), zk_lock_release('$_')") foreach "/wanted$run", "/unwanted$run";
	$watcher->query("SELECT zk_semaphore_acquire('/sem$run', 2), zk_semaphore_release('/sem$run')");
}
wait_until_idle();

foreach my $run (qw(1 2))
{
	lose_creates($run);
	if ($run == 2)
	{
		my $pid = $node->worker_pid;
		$watcher->query("SELECT pg_terminate_backend($pid)");
		$node->wait_until("SELECT worker_pid <> $pid AND state IN ('connected', 'idle') FROM zk_sessions");
	}
	my $at = -s $node->logfile;
	cmp_ok($proxy->deliver, '>=', 3, "$run: ZooKeeper creates three znodes late");
	$zk->wait_until(sub { !znodes("/unwanted$run") && !znodes("/sem$run/locks") && znodes("/wanted$run") == 1 },
		'the late znodes to go');
	$node->wait_until_connected;
	my @deleted;
	$zk->wait_until(sub {
			@deleted = sort(slurp_file($node->logfile, $at) =~ m{deleted a znode in "/zklock/(\S+)" that ZooKeeper has created late}g);
			return @deleted >= 3; }, 'the log to tell of them');
	is_deeply(\@deleted, [ "sem$run/locks", "unwanted$run", "wanted$run" ], "$run: the log tells");

	is($other->safe_psql('postgres', "SELECT zk_lock_acquire('/unwanted$run', '10s')"), 't', "$run: another server gets the lock");
	is($patient->query("SELECT zk_lock_is_held('/wanted$run')"), 't', "$run: and the lock that is held is held");
	is($patient->query("SELECT zk_lock_release('/wanted$run')"), 't', "$run: to the end");
	wait_until_idle();
}

# A session that holds nothing any more is still proved to live, as long as a late znode may come.
lose_creates('idle');
$patient->query(q{SELECT zk_lock_release('/wantedidle')});
$node->wait_until('SELECT count(*) = 0 FROM zk_locks');
my $safe_until = $node->status('safe_until');
$node->wait_until("SELECT safe_until > '$safe_until' FROM zk_status");
pass('idle: proved while znodes may come');
cmp_ok($proxy->deliver, '>=', 3, 'idle: ZooKeeper creates three znodes late');
$node->wait_until(q{SELECT state = 'idle' FROM zk_status});
is_deeply([ map { znodes($_) } '/wantedidle', '/unwantedidle', '/semidle/locks' ], [], 'idle: and not any more when they are deleted');

# A server remembers 256 such creates.  One role can lose more at once; then the oldest makes room.
# A late znode of a forgotten create ends with the ZooKeeper session.
my $forgotten = '/wanted1';
$proxy->hold('requests');
my $tickets = $watcher->query('SELECT tickets FROM zk_status');
$impatient->send("SELECT zk_lock_acquire('$forgotten')");
$node->wait_until("SELECT tickets = $tickets + 1 FROM zk_status");
$watcher->query('SELECT pg_cancel_backend(' . $impatient->pid . ')');
is($impatient->result->{errcode}, '57014', 'crowd: one create is lost first');
$proxy->keep;
wait_until_idle();

my $at = -s $node->logfile;
my $script = PostgreSQL::Test::Utils::tempdir() . '/crowd.sql';
append_to_file($script, q{SELECT pg_advisory_lock_shared(1);
SELECT zk_lock_acquire('/crowd/' || :client_id);});
# (At most so many are on their way at a time, so it takes several connections.)
foreach my $n (1 .. 5)
{
	unlike(slurp_file($node->logfile, $at), qr/too many lost connections/, 'crowd: up to now there is room');
	$tickets = $watcher->query('SELECT tickets FROM zk_status');
	my $worker = $node->worker_pid;
	$watcher->query('SELECT pg_advisory_lock(1)');
	my $crowd = IPC::Run::start([ 'pgbench', '-n', '-c', 52, '-j', '1', '-t', '1', '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
		'>', \my $out, '2>', \my $err);
	$node->wait_until(q{SELECT count(*) = 52 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted});

	# (ZooKeeper is silent only from here on: on a busy machine, 52 clients connect for longer than the first call waits.)
	kill 'STOP', $worker;
	$watcher->query('SELECT pg_advisory_unlock(1)');
	$node->wait_until(q{SELECT count(*) = 52 FROM zk_locks WHERE path LIKE '/crowd/%'});
	$proxy->hold('requests');
	kill 'CONT', $worker;
	$node->wait_until("SELECT tickets = $tickets + 52 FROM zk_status");
	is($watcher->query(q{SELECT count(pg_cancel_backend(pid)) FROM zk_locks WHERE path LIKE '/crowd/%'}), 52, 'crowd: 52 more are lost');
	$crowd->finish;
	$proxy->keep;
	wait_until_idle();
}
my @made_room = slurp_file($node->logfile, $at) =~ m{too many lost connections are remembered\n.*"/zklock(\S+)" will not be deleted before}g;
is(@made_room, 1 + 5 * 52 - 256, 'crowd: as many have made room as there are too many, and the log says so');
is($made_room[0], $forgotten, 'crowd: the oldest first');
cmp_ok($proxy->deliver, '>', 0, 'crowd: ZooKeeper creates znodes late');
$node->wait_until_connected;
is($other->safe_psql('postgres', "SELECT zk_lock_acquire('$forgotten', '0')"), 'f', 'crowd: the forgotten znode is not deleted');
$_->quit foreach $patient, $impatient, $counting, $watcher;
$node->stop;
is($other->safe_psql('postgres', "SELECT zk_lock_acquire('$forgotten', '10s')"), 't', 'crowd: it ends with the ZooKeeper session');

done_testing();
