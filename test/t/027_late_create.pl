
# Creates whose connection was lost, and which ZooKeeper carries out when the tickets have
# already been told that there is no znode: as when a partition has held up a server that the
# client had left.  The proxy plays that server.

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;

use HoldingProxy;
use ZklockNode;
use ZooKeeper;

my $zk = ZooKeeper->new;
my $proxy = HoldingProxy->new($zk->hosts);
my $node = ZklockNode->started('a', undef, 'zklock.hosts' => $proxy->address,
	'zklock.session_timeout' => '20s', 'zklock.linger' => 0);
my ($patient, $impatient, $counting, $watcher) = map { $node->backend } 1 .. 4;
my $other = ZklockNode->started('b', $zk);

sub znodes { my ($path) = @_; return grep { /\d{10}$/ } @{ $zk->children("/zklock$path") // [] }; }

# All creates are under way, and no backend wants these locks any more but the patient one.
sub lose_creates
{
	my ($run) = @_;
	$proxy->hold('requests');
	my $before = $watcher->query('SELECT tickets FROM zk_status');
	$patient->send("SELECT zk_lock_acquire('/wanted$run')");
	$impatient->send("SELECT zk_lock_acquire('/unwanted$run')");
	$counting->send("SELECT zk_semaphore_acquire('/sem$run', 2)");
	$node->wait_until("SELECT tickets = $before + 3 FROM zk_status");
	$watcher->query('SELECT pg_cancel_backend(' . $_->pid . ')') foreach $impatient, $counting;
	is($_->result->{errcode}, '57014', "$run: withdrawn while the create is under way") foreach $impatient, $counting;
	$proxy->keep;
	is($patient->result->{out}, 't', "$run: the one that still waits has the lock by a second create");
	$node->wait_until(q{SELECT count(*) = 1 FROM zk_locks});
	is_deeply([ znodes("/unwanted$run") ], [], "$run: there is no znode");
	return;
}

# Makes the directories: a create in a directory that is missing could not be done late.
foreach my $run (qw(1 2 idle))
{
	$watcher->query("SELECT zk_lock_acquire('$_'), zk_lock_release('$_')") foreach "/wanted$run", "/unwanted$run";
	$watcher->query("SELECT zk_semaphore_acquire('/sem$run', 2), zk_semaphore_release('/sem$run')");
}
$node->wait_until('SELECT count(*) = 0 FROM zk_locks');

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
	$node->wait_until('SELECT count(*) = 0 FROM zk_locks');
}

# A session that holds nothing any more is still proved to live, as long as a znode may come.
lose_creates('idle');
$patient->query(q{SELECT zk_lock_release('/wantedidle')});
$node->wait_until('SELECT count(*) = 0 FROM zk_locks');
my $safe_until = $node->status('safe_until');
$node->wait_until("SELECT safe_until > '$safe_until' FROM zk_status");
pass('idle: proved while znodes may come');
cmp_ok($proxy->deliver, '>=', 3, 'idle: ZooKeeper creates three znodes late');
$node->wait_until(q{SELECT state = 'idle' FROM zk_status});
is_deeply([ map { znodes($_) } '/wantedidle', '/unwantedidle', '/semidle/locks' ], [], 'idle: and not any more when they are deleted');

done_testing();
