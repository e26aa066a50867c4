
# Two servers want a path as two kinds of lock at once: they never both have it.  One of them stands
# still at a fault point between its look and its znode, in both orders.  Needs servers with fault
# points (make FAULTS=1).

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = (
	'zklock.session_timeout' => '60s',
	'zklock.connection_timeout' => '3min');
my ($node_a, $node_b) = map { ZklockNode->started($_, $zk, %settings) } qw(a b);
my ($a1, $b1) = map { $_->backend } $node_a, $node_b;

# The process that gets to the point stands still; returns it.
sub stand_still
{
	my ($node, $point, $backend, $sql) = @_;
	$node->arm($point);
	$backend->send($sql);
	return $node->at_point($point);
}

sub is_in_use
{
	my ($result, $path, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{errcode}, 'ZK003', $what);
	like($result->{err}, qr/lock "\Q$path\E" is in use as another kind of lock/, "$what: message");
	return;
}

# --- the semaphore has looked, but made no lease yet ---

my %locks = (
	mutex => [ 'zk_lock_acquire', 'zk_lock_release' ],
	reader => [ 'zk_read_lock_acquire', 'zk_read_lock_release' ],
	writer => [ 'zk_write_lock_acquire', 'zk_write_lock_release' ]);
my %points = (
	wait => [ 'semaphore-surveyed', '1min' ],
	try => [ 'want-seen', '0' ]);		# stops the worker

foreach my $lock (sort keys %locks)
{
	foreach my $way (sort keys %points)
	{
		my ($acquire, $release) = @{ $locks{$lock} };
		my ($point, $timeout) = @{ $points{$way} };
		my $path = "/looked/$lock/$way";
		my $process = stand_still($node_a, $point, $a1, "SELECT zk_semaphore_acquire('$path', 3, '$timeout', 2)");

		is($b1->query("SELECT $acquire('$path', '1min')"), 't', "$lock, $way: another kind comes first");
		kill 'CONT', $process;
		is_in_use($a1->result, $path, "$lock, $way: the semaphore gives up");
		$zk->wait_for_children("/zklock$path/leases", 0);
		is($b1->query("SELECT zk_lock_is_held('$path')"), 't', "$lock, $way: the other holds on");
		is_in_use($a1->run("SELECT zk_semaphore_acquire('$path', 3, '$timeout')"), $path, "$lock, $way: and again");
		$b1->query("SELECT $release('$path')");
	}
}

# --- the semaphore has its leases, but has not looked again ---

my $process = stand_still($node_a, 'semaphore-granted', $a1, q{SELECT zk_semaphore_acquire('/granted', 3)});
is_in_use($b1->run("SELECT $locks{$_}[0]('/granted', '1min')"), '/granted', "leases are there: no $_") foreach sort keys %locks;
$zk->wait_for_children('/zklock/granted', 2);
kill 'CONT', $process;
is($a1->answer, 't', 'leases are there: the semaphore has it');
is($a1->query(q{SELECT zk_semaphore_release('/granted')}), 't', 'leases are there: released');

# The timeout passes before the second look has its reply.
foreach (['5 s', 0, ''], ['1min', '5s', '55P03'])
{
	my ($timeout, $lock_timeout, $errcode) = @$_;
	my $what = "leases are there, timeout $timeout, lock_timeout $lock_timeout";
	$a1->query("SET lock_timeout = '$lock_timeout'");
	my $process = stand_still($node_a, 'semaphore-granted', $a1, "SELECT zk_semaphore_acquire('/late', 3, '$timeout')");
	my $worker = $node_a->worker_pid;
	# The worker stands still only at the end, because a silence of 1.5 s would be an error (08006).
	$node_a->wait_until("SELECT clock_timestamp() > query_start + interval '4.6 s' FROM pg_stat_activity WHERE pid = $process");
	kill 'STOP', $worker;
	kill 'CONT', $process;
	$zk->wait_until(sub { $a1->is_done }, "$what: the end of the time", 30);
	my $result = $a1->result;
	is("$result->{out}$result->{errcode}", $errcode || 'f', $what);
	kill 'CONT', $worker;
	$zk->wait_for_children('/zklock/late/leases', 0);
	pass("$what: the lease is given back");
}
$a1->query('RESET lock_timeout');

# --- the mutex has its znode, and has looked before the semaphore comes ---

$b1->query(q{SELECT zk_lock_acquire('/mutex'), zk_lock_release('/mutex')});
$zk->wait_for_children('/zklock/mutex', 0);
$process = stand_still($node_b, 'list-answered', $b1, q{SELECT zk_lock_acquire('/mutex')});
is($a1->query(q{SELECT zk_semaphore_acquire('/mutex', 3, '0')}), 'f', 'a mutex is there: whether it is in use, its server does not say');
$a1->send(q{SELECT zk_semaphore_acquire('/mutex', 3, '1min')});
$node_a->wait_until(q{SELECT claim = 'waiting' FROM zk_locks WHERE path = '/mutex'});
kill 'CONT', $process;
is($b1->answer, 't', 'a mutex is there: it has the lock');
is_in_use($a1->result, '/mutex', 'a mutex is there: no semaphore');
is_in_use($a1->run(q{SELECT zk_semaphore_acquire('/mutex', 3, '0')}), '/mutex', 'a mutex is there: nor a try');
$b1->query(q{SELECT zk_lock_release('/mutex')});

# --- leases that linger ---

sub again { my ($backend, $path) = @_; $backend->query("SELECT zk_semaphore_acquire('$path', 3, '1min'), zk_semaphore_release('$path')") foreach 1 .. 2; return; }

# Lingering leases serve the next claim, and the path stays a semaphore.
$node_a->set('zklock.linger', '1min');
again($a1, '/lingers');
my $tickets = $node_a->status('tickets');
is($a1->query(q{SELECT zk_semaphore_acquire('/lingers', 3, '1min')}), 't', 'a lease that lingers is taken');
is($node_a->status('tickets'), $tickets, 'and no other is made');
is_in_use($b1->run(q{SELECT zk_lock_acquire('/lingers', '1min')}), '/lingers', 'no mutex beside it');
$a1->query(q{SELECT zk_semaphore_release('/lingers')});

# Lost leases prove nothing any more.
again($a1, '/lost');
$process = stand_still($node_a, 'semaphore-surveyed', $a1, q{SELECT zk_semaphore_acquire('/lost', 3, '1min', 2)});
$zk->delete("/zklock/lost/leases/$_") foreach @{ $zk->children('/zklock/lost/leases') };
$node_a->wait_until('SELECT tickets_lost > 0 FROM zk_status');
$b1->query(q{SELECT zk_lock_acquire('/lost', '1min')});
kill 'CONT', $process;
is_in_use($a1->result, '/lost', 'leases that were lost prove nothing');

# --- a lease is taken while another backend of the server takes the path for a mutex ---

# At zklock.fault.advisory-lock-tried, the backend has the advisory lock, and has not seen what kind the
# path is.
my ($a2, $a3) = map { $node_a->backend } 1, 2;
foreach ([ '', 'granted' ], [ '', 'cancelled' ], [ '', 'timed out' ], [ 'xact_', 'granted' ], [ 'xact_', 'cancelled' ])
{
	my ($scope, $end) = @$_;
	my $path = "/local/$scope$end";
	my $what = "advisory lock, ${scope}semaphore, $end";
	my $both = "SELECT zk_semaphore_acquire('$path', 2, '1min', 2), zk_semaphore_release('$path', 2)";
	$a1->query(q{SET lock_timeout = '2s'}) if $end eq 'timed out';
	$a1->query('BEGIN; SAVEPOINT s') if $scope;
	my $process = stand_still($node_a, 'semaphore-acquired', $a1, "SELECT zk_${scope}semaphore_acquire('$path', 2, '1min', 2)");
	my $other = stand_still($node_a, 'advisory-lock-tried', $a2, "SELECT zk_lock_acquire('$path')");
	kill 'CONT', $process;
	# Its time may be over by now.
	$node_a->wait_until("SELECT count(*) = 1 FROM pg_locks WHERE pid = $process AND NOT granted") unless $end eq 'timed out';
	$a3->query("SELECT pg_cancel_backend($process)") if $end eq 'cancelled';
	if ($end eq 'granted')
	{
		kill 'CONT', $other;
		is_in_use($a2->result, $path, "$what: the mutex gives up");
		is($a1->answer, 't', "$what: the leases are there");
		is($a3->query("SELECT zk_semaphore_acquire('$path', 2, '0')"), 'f', "$what: and in use");
	}
	else
	{
		is($a1->result->{errcode}, $end eq 'cancelled' ? '57014' : '55P03', "$what: an error");
		kill 'CONT', $other;
		$a2->result;			# it may be soon enough, or too soon
		$a2->query('SELECT zk_lock_release_all()');
		$a1->query($scope ? 'ROLLBACK TO s' : 'RESET lock_timeout');
		is($a3->query($both), 't|t', "$what: no lease is left behind");
		is($a1->query("SELECT zk_${scope}semaphore_acquire('$path', 2)"), 't', "$what: and the backend can have one");
	}
	$a1->query($scope ? 'COMMIT' : 'SELECT zk_lock_release_all()');
	is($a3->query($both), 't|t', "$what: all are given back");
}
is($a3->query(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'no advisory lock is left');

# --- a reader's znode takes the place of the writer's after zklock has read the queue ---

foreach (
	[ 'zk_lock_force_release', sub { $node_a->wait_until(q{SELECT claim = 'lost' FROM zk_locks WHERE path = '/downgraded'}) } ],
	[ 'zk_lock_revoke', sub { $a1->wait_until(q{SELECT zk_lock_is_revoked('/downgraded')}) } ])
{
	my ($function, $wait) = @$_;
	$a1->query(q{SELECT zk_write_lock_acquire('/downgraded'), zk_read_lock_acquire('/downgraded')});
	my $process = stand_still($node_b, 'holders-read', $b1, "SELECT $function('/downgraded')");
	$a1->query(q{SELECT zk_write_lock_release('/downgraded')});
	$zk->wait_for_children('/zklock/downgraded', sub { "@{ $_[0] }" =~ /^\S+__READ__\d+$/ });
	kill 'CONT', $process;
	is($b1->answer, 1, "$function beside a downgrade: the reader's znode is changed");
	$wait->();
	$a1->run('SELECT zk_lock_release_all()');
	$zk->wait_for_children('/zklock/downgraded', 0);
}

$_->quit foreach $a1, $a2, $a3, $b1;
$_->stop foreach $node_a, $node_b;

# --- the queue of a lock, at a leader that has lost its quorum ---

# Another leader may have granted the lock to another client by then.  So the list must wait, although
# the old leader has not noticed yet, and would answer a read or a sync.
my $ensemble = ZooKeeper->new(servers => 3, tick_time => 2000);
my $leader = $ensemble->leader;
my @followers = $ensemble->followers;
my $node_c = ZklockNode->started('c', undef, %settings,
	'zklock.hosts' => $ensemble->address($leader));
my ($c1, $c2) = map { $node_c->backend } 1 .. 2;

sub waits_for_a_quorum
{
	my ($backend, $what, $go_on) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my $requests = $node_c->status('requests');
	$ensemble->pause(@followers);
	$go_on->();
	$node_c->wait_until("SELECT requests > $requests FROM zk_status");
	is($ensemble->mode($leader), 'leader', "$what: the leader has not noticed");
	ok(!$backend->is_done, "$what: no answer without a quorum");
	$ensemble->resume(@followers);
	return;
}

is($c1->query(q{SELECT zk_semaphore_acquire('/deposed', 3)}), 't', 'queue: a lease is held');
$ensemble->wait_for_children('/zklock/deposed/locks', 0);
waits_for_a_quorum($c2, 'queue', sub { $c2->send(q{SELECT count(*) FROM zk_lock_queue('/deposed')}); });
is($c2->answer, 1, 'queue: shown when the quorum is back');

$_->quit foreach $c1, $c2;
$node_c->stop;
done_testing();
