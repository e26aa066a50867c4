# All ways in which a wait can end, at every moment of it: nothing is left behind.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my @settings = (
	'zklock.session_timeout' => '20s',
	'zklock.linger' => 0,
	'zklock.tenure' => 0);
my $node_a = ZklockNode->started('a', $zk, @settings);
my $node_b = ZklockNode->started('b', $zk, @settings);

# Waiters are on b; the holder is on a (they wait in ZooKeeper) or on b (they wait for the advisory
# lock).
my $far = $node_a->backend;
my $near = $node_b->backend;
my $waiter = $node_b->backend;
my $judge = $node_b->backend;
my %holder = (ZooKeeper => $far, local => $near);
my %node = (ZooKeeper => $node_a, local => $node_b);

sub is_waiting
{
	my ($path, $where) = @_;
	return "SELECT count(*) > 0 FROM zk_locks WHERE path = '$path' AND NOT granted"
	  . ($where eq 'ZooKeeper' ? " AND ticket = 'queued'" : '');
}

# Nothing is left on b, and only the holder's znode in ZooKeeper; then the lock goes round.
sub is_clean
{
	my ($path, $where, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $others = $where eq 'local' ? 1 : 0;

	$judge->wait_until("SELECT (SELECT count(*) FROM zk_locks WHERE path = '$path') = $others"
		. " AND (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = 0) = $others");
	$zk->wait_for_children("/zklock$path", 1);
	is($holder{$where}->query(held($path)), 't', "$what: nothing left, holder unharmed");
	is($holder{$where}->query(release($path)), 't', "$what: holder releases");
	foreach my $s ($far, $near)
	{
		$s->query(acquire($path));
		$s->query(release($path));
	}
	$zk->wait_for_children("/zklock$path", 0);
	$_->wait_until_clean($path) foreach $node_a, $node_b;
	pass("$what: the lock can be taken on both servers");
	return;
}

foreach my $where ('ZooKeeper', 'local')
{
	my $holder = $holder{$where};

	foreach my $scope ('zk_lock_acquire', 'zk_xact_lock_acquire')
	{
		# --- settings and signals that end a wait ------------------------------------------

		my $path = "/end/$where/$scope";
		my $what = "$where, $scope";
		$holder->query(acquire($path));

		my $elapsed = "clock_timestamp() - statement_timestamp() >=";
		is($waiter->run_again("SELECT $scope('$path', '200ms'), $elapsed '200ms'")->{out}, 'f|t', "$what: timeout");

		$waiter->query("SET lock_timeout = '200ms'");
		is($waiter->errcode("SELECT $scope('$path')"), '55P03', "$what: lock_timeout");
		is($waiter->errcode("SELECT $scope('$path', '1h')"), '55P03', "$what: lock_timeout below the timeout");
		$waiter->query("SET lock_timeout = '1h'");
		is($waiter->run_again("SELECT $scope('$path', '200ms')")->{out}, 'f', "$what: timeout below lock_timeout");
		is($waiter->query('SHOW lock_timeout'), '1h', "$what: lock_timeout is as it was");
		$waiter->query('RESET lock_timeout');

		$waiter->query("SET statement_timeout = '200ms'");
		is($waiter->errcode("SELECT $scope('$path')"), '57014', "$what: statement_timeout");
		is($waiter->errcode("SELECT $scope('$path', '1h')"), '57014', "$what: statement_timeout below the timeout");
		$waiter->query('RESET statement_timeout');

		foreach my $timeout ('NULL', "'1h'")
		{
			$waiter->send("SELECT $scope('$path', $timeout)");
			$judge->wait_until(is_waiting($path, $where));
			$judge->query('SELECT pg_cancel_backend(' . $waiter->pid . ')');
			is($waiter->result->{errcode}, '57014', "$what: cancel of a wait for $timeout");
		}

		# In a transaction that goes on after a savepoint.
		$waiter->query('BEGIN; SAVEPOINT s');
		$waiter->send("SELECT $scope('$path')");
		$judge->wait_until(is_waiting($path, $where));
		$judge->query('SELECT pg_cancel_backend(' . $waiter->pid . ')');
		is($waiter->result->{errcode}, '57014', "$what: cancel behind a savepoint");
		is($waiter->run_again("ROLLBACK TO s; SELECT $scope('$path', '10ms')")->{out}, 'f', "$what: the transaction goes on");
		$waiter->query('COMMIT');

		foreach my $timeout ('NULL', "'1h'")
		{
			my $victim = $node_b->backend;
			my $pid = $victim->pid;
			$victim->send("SELECT $scope('$path', $timeout)");
			$judge->wait_until(is_waiting($path, $where));
			$judge->query("SELECT pg_terminate_backend($pid)");
			is($victim->result->{errcode}, '57P01', "$what: terminated in a wait for $timeout");
		}

		# PostgreSQL does not notice that a client has gone unless it checks.
		my $victim = $node_b->backend;
		$victim->query("SET client_connection_check_interval = '50ms'");
		$victim->send("SELECT $scope('$path')");
		$judge->wait_until(is_waiting($path, $where));
		$victim->kill_client;

		is_clean($path, $where, $what);
	}

	# --- a client that goes in the middle of a wait, when no backend checks for that --------

	my $path = "/gone/$where";
	$holder->query(acquire($path));
	my $victim = $node_b->backend;
	$victim->send(acquire($path));
	$judge->wait_until(is_waiting($path, $where));
	$victim->kill_client;
	my $next = $node{$where}->backend;
	$next->send(acquire($path));
	$node{$where}->wait_until("SELECT count(*) > 0 FROM zk_locks WHERE path = '$path' AND pid = " . $next->pid);
	$holder->query(release($path));
	is($next->answer, 't', "$where: a waiter whose client is gone gets the lock, ends, and hands it on");

	# --- a client that goes while its backend holds the lock ---------------------------------

	$waiter->send(acquire($path));
	$judge->wait_until(is_waiting($path, $where));
	$next->kill_client;
	is($waiter->answer, 't', "$where: a holder whose client is gone holds no more");
	$waiter->query(release($path));
	$zk->wait_for_children("/zklock$path", 0);
}

# --- a local wait that becomes one in ZooKeeper has one deadline ------------------------------

foreach my $limit ('timeout', 'lock_timeout')
{
	my $path = "/both/$limit";
	$near->query(acquire($path));
	$far->send(acquire($path));
	$node_a->wait_for_ticket($path, 'queued');
	$node_b->wait_until_contended($path);

	my $timeout = $limit eq 'timeout' ? "'6s'" : 'NULL';
	$waiter->query("SET lock_timeout = '6s'") if $limit eq 'lock_timeout';
	$waiter->send("SELECT zk_lock_acquire('$path', $timeout)");
	my $still = "SELECT count(*) > 0 FROM zk_locks WHERE path = '$path' AND NOT granted"
	  . " AND clock_timestamp() > claim_since + interval '5 seconds'";
	$zk->wait_until(sub { $waiter->is_done || $judge->query($still) eq 't' }, "$limit: five seconds to pass");
	$near->query(release($path));
	is($far->answer, 't', "$limit: after five seconds of waiting, the other server has the lock");

	# On a slow machine, the wait may have ended already.
	my $result = $waiter->result;
	is($limit eq 'timeout' ? $result->{out} : $result->{errcode},
		$limit eq 'timeout' ? 'f' : '55P03', "$limit: then the time is over");
	cmp_ok($result->{seconds}, '>=', 5.9, "$limit: not too early");
	cmp_ok($result->{seconds}, '<', 10.5, "$limit: and it did not begin anew");
	$waiter->query('RESET lock_timeout');
	$node_b->wait_until_clean($path);
	$far->query(release($path));
}

# --- the moment of the grant --------------------------------------------------------------------

# The holder releases and the waiter is cancelled at the same time.  The test moves the time between
# the two to where both outcomes are equally likely.
sub race
{
	my ($where, $rounds, $timeout, $begin, $end) = @_;
	my ($path, $holder, $offset, %outcome) = ("/race/$where", $holder{$where}, 0.005);

	foreach my $round (1 .. $rounds)
	{
		# If the last round had left something behind, this would wait for ever.
		$holder->query(acquire($path));

		my $victim = $begin->();
		my $pid = $victim->pid;
		$victim->send("SELECT zk_lock_acquire('$path', $timeout)");
		$judge->wait_until(is_waiting($path, $where));

		my ($release_at, $cancel_at) = $offset > 0 ? (0, $offset) : (-$offset, 0);
		$_ += rand 0.001 foreach $release_at, $cancel_at;
		$holder->send("SELECT pg_sleep($release_at), zk_lock_release('$path')");
		$judge->send("SELECT pg_sleep($cancel_at), $end($pid)");
		$holder->answer;
		$judge->answer;
		my $outcome = $victim->result;

		my $was_granted = $outcome->{out} eq 't';
		$outcome{ $was_granted ? 'granted' : $outcome->{errcode} }++;
		$offset += ($was_granted ? -1 : 1) * rand 0.002;
		if ($begin->('is one')) { $victim->query('SELECT zk_lock_release_all()') }
	}
	return \%outcome;
}

my %kinds = (
	pg_cancel_backend => [ 100, '57014', sub { return $waiter } ],
	pg_terminate_backend => [ 50, '57P01', sub { return $_[0] ? undef : $node_b->backend } ]);
foreach my $where ('ZooKeeper', 'local')
{
	foreach my $end (sort keys %kinds)
	{
		foreach my $timeout ('NULL', "'1h'")
		{
			my ($rounds, $sqlstate, $begin) = @{ $kinds{$end} };
			my $what = "$where, $end at the moment of the grant, timeout $timeout";
			my $outcome = race($where, $rounds, $timeout, $begin, $end);

			note explain $outcome;
			is(($outcome->{granted} // 0) + ($outcome->{$sqlstate} // 0), $rounds, "$what: no other outcome");

			my $path = "/race/$where";
			$_->wait_until_clean($path) foreach $node_a, $node_b;
			$zk->wait_for_children("/zklock$path", 0);
			is($far->query(acquire($path)), 't', "$what: the lock is free for the other server");
			is($near->query(try($path)), 'f', "$what: and excludes this one");
			$far->query(release($path));
		}
	}
}
# The same for a timeout that fires at the moment of the grant.
foreach my $where ('ZooKeeper', 'local')
{
	foreach my $limit ('timeout', 'lock_timeout', 'statement_timeout')
	{
		my ($path, $what) = ("/race/$where/$limit", "$where, $limit at the moment of the grant");
		my ($holder, $rounds, $release_at, %outcome) = ($holder{$where}, 25, 0.03);
		my $timeout = $limit eq 'timeout' ? "'30ms'" : 'NULL';

		foreach my $round (1 .. $rounds)
		{
			$holder->query(acquire($path));
			$waiter->query("SET $limit = '30ms'") unless $limit eq 'timeout';
			$waiter->send("SELECT zk_lock_acquire('$path', $timeout)");
			$holder->send("SELECT pg_sleep($release_at), zk_lock_release('$path')");
			$holder->answer;
			my $outcome = $waiter->result;

			redo if $outcome->{errcode} eq '08006' && $outcome->{seconds} > 0.5;		# it stood still
			$outcome{ $outcome->{out} . $outcome->{errcode} }++;
			$release_at += ($outcome->{out} eq 't' ? 1 : -1) * rand 0.003;
			$release_at = 0 if $release_at < 0;

			# A statement that is cancelled too late has the lock, too, as with pg_advisory_lock().
			# (The limit also holds for the statement that ends it.)
			1 while $limit ne 'timeout' && $waiter->errcode("RESET $limit") eq '57014';
			$waiter->query('SELECT zk_lock_release_all()') if $outcome->{out} eq 't' || $outcome->{errcode} eq '57014';
		}

		note explain \%outcome;
		my $other = { timeout => 'f', lock_timeout => '55P03', statement_timeout => '57014' }->{$limit};
		is(($outcome{t} // 0) + ($outcome{$other} // 0), $rounds, "$what: no other outcome");
		$_->wait_until_clean($path) foreach $node_a, $node_b;
		$zk->wait_for_children("/zklock$path", 0);
		is($far->query(try($path)), 't', "$what: the lock is free for the other server");
		$far->query(release($path));
	}
}
$node_b->wait_until('SELECT entries = 0 FROM zk_status');
pass('no entry is left');

$_->quit foreach $far, $near, $waiter, $judge;
$_->stop foreach $node_a, $node_b;
done_testing();
